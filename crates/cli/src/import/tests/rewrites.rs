//! `rewrite` in locations, and locations in locations: each takes its own paths, and no others.

use super::*;

/// The texts of all routes, in their order.
fn routes(text: &str) -> Vec<&str> {
    text.split("[[site.route]]\n").skip(1).map(|route| route.split("\n\n").next().unwrap_or_default()).collect()
}

/// The number of the route that has this text.
#[track_caller]
fn place(routes: &[&str], part: &str) -> usize {
    routes.iter().position(|route| route.contains(part)).unwrap_or_else(|| panic!("no {part} in {routes:#?}"))
}

#[test]
fn a_rewrite_holds_in_its_location_and_leaves_the_rest_to_it() {
    let (text, left, _) = one("server {\n  listen 80;\n  root /srv;\n\
        location /old/ { rewrite ^(.*)$ /new$1 permanent; }\n\
        location /all/ { rewrite ^ /one last; proxy_set_header A b; }\n\
        location /blog/ { rewrite ^/blog/x/(.*)$ /blog/y/$1 last; rewrite z$ /zz redirect; try_files $uri /blog/index.html; }\n\
        location = /one { rewrite ^/one$ /two last; }\n\
        location ~ \\.php$ { rewrite ^/wp-(.*)$ /w/$1 last; rewrite ^/old-(.*)\\.php$ /$1.php last; fastcgi_pass 127.0.0.1:9000; }\n\
        location /far/ { rewrite ^/near/(.*)$ /x/$1; autoindex on; }\n}\n");
    has(
        &text,
        &[
            "path-regex = \"^(/old/.*)$\"\nredirect-status = 301\nredirect = \"/new{1}{query}\"",
            "path = \"/all/\"\nrewrite = \"/one{query}\"",
            "path-regex = \"^/blog/x/(.*)$\"\nrewrite = \"/blog/y/{1}{query}\"",
            "path-regex = \"^/blog/.*z$\"\nredirect = \"/zz{query}\"",
            "path = \"/blog/\"\nfiles = true\ntry-files = [\"/blog/index.html\"]",
            "path-regex = \"^/one$\"\nrewrite = \"/two{query}\"",
            "path-regex = '^/old-(.*)\\.php$'\nrewrite = \"/{1}.php{query}\"",
            "path-regex = '\\.php$'\nfastcgi = \"127.0.0.1:9000\"",
            "path = \"/far/\"\nfiles = true\nlisting = true",
        ],
    );
    assert!(!text.contains("path = \"/old/\""), "{text}");
    let routes = routes(&text);
    assert!(place(&routes, "^/old-") < place(&routes, "fastcgi"), "{text}");
    // The scripts of the blog are scripts first.
    assert!(place(&routes, "fastcgi") < place(&routes, "^/blog/x/"), "{text}");
    for (place, part) in [("nginx.conf:8", "^/wp-"), ("nginx.conf:9", "^/near/")] {
        assert!(left.iter().any(|left| left.starts_with(place) && left.contains(part)), "{place}: {left:#?}");
    }
    assert_eq!(left.len(), 2, "{left:#?}");
}

#[test]
fn a_location_in_a_location_takes_its_paths_before_those_outside() {
    let (text, left, _) = one("server {\n  listen 80;\n  root /srv;\n\
        location / { location ~ \\.bak$ { return 404; } }\n\
        location /admin/ { auth_basic x; auth_basic_user_file /u; location ~ \\.php$ { fastcgi_pass 127.0.0.1:1; } }\n\
        location /admin/open/ { autoindex on; }\n\
        location ^~ /a/ { return 200; location /a/b/ { return 403; } location ~* \\.(jpg|png)$ { return 405; } }\n\
        location ~ \\.php$ { fastcgi_pass 127.0.0.1:2; }\n}\n");
    let routes = routes(&text);
    let order = [
        "path-regex = '^/a/.*(?i:\\.(jpg|png)$)'",
        "path = \"/a/b/\"",
        "path = \"/a/\"",
        "unless = { path-regex = [\"^/admin/\", \"^/admin/open/\", \"^/a/\"] }",
        "path-regex = '^/admin/.*\\.php$'\nunless = { path-regex = [\"^/admin/open/\"] }",
        "fastcgi = \"127.0.0.1:2\"",
        "path = \"/admin/open/\"",
        "path = \"/admin/\"",
    ];
    let places: Vec<usize> = order.iter().map(|part| place(&routes, part)).collect();
    assert!(places.is_sorted(), "{places:?}\n{text}");
    assert!(routes[places[4]].contains("require = "), "{text}");
    assert_eq!(left.len(), 0, "{left:#?}");
}

#[test]
fn scripts_whose_application_is_not_translated_are_closed() {
    let (text, left, _) =
        one("server {\n  listen 80;\n  root /srv;\n  location ~ \\.php$ { fastcgi_pass $application; }\n}\n");
    has(&text, &["path-regex = '\\.php$'\nrespond = 403"]);
    assert!(left.iter().any(|left| left.contains("variables cannot choose it")), "{left:#?}");
}

/// The shape of the configuration that Nextcloud's manual has.
#[test]
fn an_application_whose_scripts_are_listed() {
    let (text, left, config) = one(
        "upstream php { server 127.0.0.1:9000; }\nserver {\n  listen 80;\n  server_name cloud.example;\n  root /srv/cloud;\n\
        index index.php index.html /index.php$request_uri;\n  types { text/javascript mjs; }\n\
        location = / { if ( $http_user_agent ~ ^DavClnt ) { return 302 /remote.php/webdav/$is_args$args; } }\n\
        location ^~ /.well-known { location = /.well-known/carddav { return 301 /remote.php/dav/; }\n\
          location /.well-known/acme-challenge { try_files $uri $uri/ =404; } return 301 /index.php$request_uri; }\n\
        location ~ ^/(?:build|data)(?:$|/) { return 404; }\n\
        location ~ \\.php(?:$|/) {\n  rewrite ^/(?!index|remote|ocs\\/v[12]|.+\\/code(_arm64)?\\/proxy) /index.php$request_uri;\n\
          fastcgi_split_path_info ^(.+?\\.php)(/.*)$;\n  set $path_info $fastcgi_path_info;\n  try_files $fastcgi_script_name =404;\n\
          fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;\n  fastcgi_param PATH_INFO $path_info;\n\
          fastcgi_param front_controller_active true;\n  fastcgi_pass php;\n  fastcgi_intercept_errors on; }\n\
        location ~ \\.(?:css|js|mjs|wasm)$ { try_files $uri /index.php$request_uri; access_log off; location ~ \\.wasm$ { default_type application/wasm; } }\n\
        location /remote { return 301 /remote.php$request_uri; }\n\
        location / { try_files $uri $uri/ /index.php$request_uri; }\n}\n",
    );
    has(
        &text,
        &[
            "path-regex = '\\.php(?:$|/)'\nunless = { path-regex = '^/(?:index|remote|ocs\\/v[12]|.+\\/code(_arm64)?\\/proxy)' }\nrewrite = \"/index.php{uri}\"",
            "path-regex = '\\.php(?:$|/)'\nfastcgi.address = \"127.0.0.1:9000\"",
            "index = [\"index.php\", \"index.html\"]",
            "mime-types = { mjs = \"text/javascript\" }",
        ],
    );
    let routes = routes(&text);
    let order =
        ["/.well-known/acme-challenge", "path = \"/.well-known\"", "build|data", "unless", "fastcgi", "path = \"/\""];
    let places: Vec<usize> = order.iter().map(|part| place(&routes, part)).collect();
    assert!(places.is_sorted(), "{places:?}\n{text}");
    assert_eq!(left.len(), 0, "{left:#?}");
    assert_eq!(config.sites.len(), 1);
}

#[test]
fn no_rewrite_leads_around_a_guard() {
    let (text, left, _) = one("server {\n  listen 80;\n  root /srv;\n  location /files/ { internal; }\n\
        location /private/ { auth_basic x; auth_basic_user_file /u; rewrite ^/private/(.*)$ /files/$1 break; }\n}\n");
    has(&text, &["path = \"/private/\"\nfiles = true\nrequire = "]);
    assert!(!text.contains("rewrite ="), "{text}");
    assert!(left.iter().any(|left| left.contains("what guards the location")), "{left:#?}");
}

/// The shape of the configuration that Drupal's projects have.
#[test]
fn what_is_missing_goes_on_with_a_named_location_that_rewrites() {
    let (text, left, _) = one("server {\n  listen 80;\n  root /srv/drupal;\n\
        location / { try_files $uri @rewrite; }\n  location @rewrite { rewrite ^ /index.php; }\n\
        location ~ ^/old/ { rewrite ^(.*)/index\\.html$ $1/ permanent; deny all; }\n\
        location ~* \\.(inc|yml)$|/(\\.(?!well-known).*) { deny all; }\n\
        location /api { rewrite ^/api/(.*)$ /v1/$1 break; proxy_pass http://127.0.0.1:8000; }\n\
        location ~ '\\.php$|^/update.php' { fastcgi_pass unix:/run/php.sock; }\n\
        if ($request_uri ~* \"^(.*/)index\\.php/(.*)\") { return 307 $1$2; }\n}\n");
    has(
        &text,
        &[
            "path = \"/\"\nfiles = true\nfallback = \"/index.php\"",
            "path-regex = '(?i)\\.(inc|yml)$|/(\\..*)'\nrespond = 403",
            "path = \"/api\"\nreplace-prefix = \"/v1\"\nupstream = \"127.0.0.1-8000\"",
            "path-regex = '(?i)^(.*/)index\\.php/(.*)'\nredirect = \"{scheme}://{host}{1}{2}\"",
        ],
    );
    assert!(left.iter().any(|left| left.contains("looking around")), "{left:#?}");
}

#[test]
fn rewrites_before_a_return_are_tried_first() {
    let (text, left, _) = one("server { listen 80; root /srv;
        location /re/ { rewrite ^/re/([0-9]+)$ /static/$1 last; rewrite ^/re/p/(.*)$ https://o.example/$1 permanent; return 404; }
        location /end/ { return 403; rewrite ^/end/(.*)$ /static/$1 last; } }");
    has(
        &text,
        &[
            "path-regex = \"^/re/([0-9]+)$\"\nrewrite = \"/static/{1}{query}\"",
            "path-regex = \"^/re/p/(.*)$\"\nredirect-status = 301\nredirect = \"https://o.example/{1}{query}\"",
            "path = \"/re/\"\nrespond = 404",
            "path = \"/end/\"\nrespond = 403",
        ],
    );
    assert!(left.is_empty() && text.matches("rewrite =").count() == 1, "{left:?}\n{text}");
}
