//! Reads the source of a crate: which of its files import which others, and how long each file is.
//!
//! A file imports another one if its code names an item of that file, in a `use` declaration or in a path. A path is
//! followed through the modules of the crate and through `use` declarations, to the file that defines the item. So an
//! item that a module only re-exports counts for the file that it comes from. Neither `mod name;` nor `pub use` alone
//! is an import: both only hand names on.
//!
//! A type may have methods in another file than its own. The type's file imports that file if it calls one of them.
//! Other method calls are not followed, because that takes the types of values. Names that macros make are not known
//! either. Code below `#[cfg(test)]` does not count.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use proc_macro2::{TokenStream, TokenTree};
use syn::{
    Attribute, Item, ItemMod, UseTree,
    visit::{self, Visit},
};

type FileId = usize;
type ModuleId = usize;
/// The names of a path, such as `["super", "queue", "Rank"]`.
type Names = Vec<String>;

/// The files of a crate's library or program, read from its root file.
#[derive(Default)]
pub struct Sources {
    files: Vec<File>,
    modules: Vec<Module>,
}

struct File {
    path: PathBuf,
    lines: usize,
    /// Names of the methods and associated functions that its code calls.
    calls: BTreeSet<String>,
}

struct Module {
    file: FileId,
    parent: Option<ModuleId>,
    /// Several of one name if the target decides between them.
    children: BTreeMap<String, Vec<ModuleId>>,
    items: BTreeSet<String>,
    /// Names that `use` declarations bring into the module.
    imported: BTreeMap<String, Vec<Names>>,
    globs: Vec<Names>,
    /// All paths that its code names.
    paths: BTreeSet<Names>,
    /// For each `impl` block without a trait: the type and the names of its methods.
    methods: Vec<(Names, BTreeSet<String>)>,
}

/// For each file the files that it imports, with the names that it takes from them.
pub type Imports = BTreeMap<PathBuf, BTreeMap<PathBuf, BTreeSet<String>>>;

impl Sources {
    pub fn read(root: &Path) -> Self {
        let mut sources = Self::default();
        sources.read_file(root, root.parent().unwrap(), None);
        sources
    }

    /// Lines of each file that are part of the product: all before the tests at its end.
    pub fn production_lines(&self) -> impl Iterator<Item = (&Path, usize)> {
        self.files.iter().map(|file| (file.path.as_path(), file.lines))
    }

    pub fn imports(&self) -> Imports {
        let mut imports: Imports = self.files.iter().map(|file| (file.path.clone(), BTreeMap::new())).collect();
        let mut add = |from: FileId, to: FileId, name: &str| {
            if from != to {
                let of_file = imports.get_mut(&self.files[from].path).unwrap();
                of_file.entry(self.files[to].path.clone()).or_default().insert(name.to_owned());
            }
        };
        for (id, module) in self.modules.iter().enumerate() {
            for path in &module.paths {
                for file in self.resolve(id, path) {
                    add(module.file, file, path.last().unwrap());
                }
            }
            for (type_path, methods) in &module.methods {
                for file in self.resolve(id, type_path) {
                    for method in methods.intersection(&self.files[file].calls) {
                        add(file, module.file, method);
                    }
                }
            }
        }
        imports
    }

    /// The files that define what a path names. Empty for other crates, local variables, and modules as such.
    fn resolve(&self, module: ModuleId, path: &[String]) -> Vec<FileId> {
        let (first, rest) = path.split_first().expect("a path has a name");
        match first.as_str() {
            "crate" => self.descend(0, rest, 0),
            "self" => self.descend(module, rest, 0),
            "super" => self.descend(self.modules[module].parent.expect("`super` is not used in the root"), rest, 0),
            _ => self.look_up(module, path, 0).unwrap_or_default(),
        }
    }

    /// Follows a path from a module whose name the path has just given.
    fn descend(&self, module: ModuleId, path: &[String], depth: usize) -> Vec<FileId> {
        match path.first().map(String::as_str) {
            None => Vec::new(),
            Some("super") => self.descend(self.modules[module].parent.unwrap(), &path[1..], depth),
            Some("self" | "*") if path.len() == 1 => vec![self.modules[module].file],
            // A name that no item has was made by a macro.
            Some(_) => self.look_up(module, path, depth).unwrap_or_else(|| vec![self.modules[module].file]),
        }
    }

    /// Follows a path that begins with a name of this module. `None`: the module has no such name.
    fn look_up(&self, module: ModuleId, path: &[String], depth: usize) -> Option<Vec<FileId>> {
        // `use time::{self}` of another crate names itself.
        if depth > 20 {
            return None;
        }
        let (first, rest) = path.split_first()?;
        let it = &self.modules[module];
        if let Some(children) = it.children.get(first)
            && (!rest.is_empty() || !it.items.contains(first))
        {
            return Some(children.iter().flat_map(|&child| self.descend(child, rest, depth + 1)).collect());
        }
        if it.items.contains(first) {
            return Some(vec![it.file]);
        }
        let follow = |target: &Names| {
            let whole: Names = target.iter().chain(rest).cloned().collect();
            match whole[0].as_str() {
                "crate" => Some(self.descend(0, &whole[1..], depth + 1)),
                "self" => Some(self.descend(module, &whole[1..], depth + 1)),
                "super" => Some(self.descend(it.parent?, &whole[1..], depth + 1)),
                _ => self.look_up(module, &whole, depth + 1),
            }
        };
        if let Some(targets) = it.imported.get(first) {
            let files: Vec<_> = targets.iter().filter_map(follow).flatten().collect();
            return Some(files);
        }
        let through_globs = it.globs.iter().filter_map(|glob| {
            let module = self.module_at(module, glob)?;
            self.look_up(module, path, depth + 1)
        });
        through_globs.into_iter().next()
    }

    /// The module that a path names, if it names one of this crate.
    fn module_at(&self, from: ModuleId, path: &[String]) -> Option<ModuleId> {
        let mut at = from;
        for name in path {
            at = match name.as_str() {
                "crate" => 0,
                "self" => at,
                "super" => self.modules[at].parent?,
                name => *self.modules[at].children.get(name)?.first()?,
            };
        }
        Some(at)
    }

    fn read_file(&mut self, path: &Path, children_dir: &Path, parent: Option<ModuleId>) -> ModuleId {
        let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let syntax = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.files.push(File { path: path.to_owned(), lines: lines_before_tests(&text), calls: BTreeSet::new() });
        self.read_module(self.files.len() - 1, children_dir, parent, &syntax.items)
    }

    fn read_module(&mut self, file: FileId, children_dir: &Path, parent: Option<ModuleId>, items: &[Item]) -> ModuleId {
        let id = self.modules.len();
        self.modules.push(Module {
            file,
            parent,
            children: BTreeMap::new(),
            items: BTreeSet::new(),
            imported: BTreeMap::new(),
            globs: Vec::new(),
            paths: BTreeSet::new(),
            methods: Vec::new(),
        });
        for item in items {
            Reader { module: &mut self.modules[id], calls: &mut self.files[file].calls, depth: 0 }.visit_item(item);
            if let Item::Mod(child) = item
                && !is_test(&child.attrs)
            {
                let name = child.ident.to_string();
                let child = self.read_child(id, children_dir, child);
                self.modules[id].children.entry(name).or_default().push(child);
            }
        }
        id
    }

    fn read_child(&mut self, parent: ModuleId, children_dir: &Path, child: &ItemMod) -> ModuleId {
        let file = self.modules[parent].file;
        let below = children_dir.join(child.ident.to_string());
        if let Some((_, items)) = &child.content {
            return self.read_module(file, &below, Some(parent), items);
        }
        if let Some(named) = path_attribute(&child.attrs) {
            let path = self.files[file].path.parent().unwrap().join(named);
            return self.read_file(&path, path.parent().unwrap(), Some(parent));
        }
        let flat = below.with_extension("rs");
        let path = if flat.exists() { flat } else { below.join("mod.rs") };
        self.read_file(&path, &below, Some(parent))
    }
}

/// Collects what the items of one module name. It does not enter other modules.
struct Reader<'a> {
    module: &'a mut Module,
    calls: &'a mut BTreeSet<String>,
    /// Above 0 inside of an item: names that are defined there are not names of the module.
    depth: usize,
}

impl Reader<'_> {
    fn read_use(&mut self, prefix: &[String], tree: &UseTree, public: bool) {
        let joined = |name: String| prefix.iter().cloned().chain([name]).collect::<Names>();
        match tree {
            UseTree::Path(it) => self.read_use(&joined(it.ident.to_string()), &it.tree, public),
            UseTree::Group(it) => it.items.iter().for_each(|tree| self.read_use(prefix, tree, public)),
            UseTree::Glob(_) => {
                self.module.globs.push(prefix.to_vec());
                if !public {
                    self.module.paths.insert(joined("*".to_owned()));
                }
            }
            UseTree::Name(it) => self.import(prefix, it.ident.to_string(), None, public),
            UseTree::Rename(it) => self.import(prefix, it.ident.to_string(), Some(it.rename.to_string()), public),
        }
    }

    fn import(&mut self, prefix: &[String], name: String, renamed: Option<String>, public: bool) {
        let mut path = prefix.to_vec();
        if name != "self" {
            path.push(name);
        }
        let known_as = renamed.unwrap_or_else(|| path.last().unwrap().clone());
        self.module.imported.entry(known_as).or_default().push(path.clone());
        if !public {
            self.module.paths.insert(path);
        }
    }

    fn name_path(&mut self, path: Names) {
        if path[0] == "Self" {
            self.calls.insert(path.last().unwrap().clone());
        } else {
            self.module.paths.insert(path);
        }
    }

    /// The paths in the arguments of a macro.
    fn read_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons) = (Names::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Ident(name) if colons == 2 && !path.is_empty() => {
                    path.push(name.to_string());
                    colons = 0;
                    continue;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(name) => {
                    let before = std::mem::replace(&mut path, vec![name.to_string()]);
                    if !before.is_empty() {
                        self.name_path(before);
                    }
                    colons = 0;
                    continue;
                }
                TokenTree::Group(group) => self.read_tokens(group.stream()),
                _ => {}
            }
            colons = 0;
            let before = std::mem::take(&mut path);
            if !before.is_empty() {
                self.name_path(before);
            }
        }
        if !path.is_empty() {
            self.name_path(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = match item {
            Item::Const(it) => (&it.attrs, Some(&it.ident)),
            Item::Enum(it) => (&it.attrs, Some(&it.ident)),
            Item::Fn(it) => (&it.attrs, Some(&it.sig.ident)),
            Item::Macro(it) => (&it.attrs, it.ident.as_ref()),
            Item::Static(it) => (&it.attrs, Some(&it.ident)),
            Item::Struct(it) => (&it.attrs, Some(&it.ident)),
            Item::Trait(it) => (&it.attrs, Some(&it.ident)),
            Item::Type(it) => (&it.attrs, Some(&it.ident)),
            Item::Union(it) => (&it.attrs, Some(&it.ident)),
            Item::Impl(it) => (&it.attrs, None),
            Item::Use(it) => (&it.attrs, None),
            Item::ForeignMod(it) => (&it.attrs, None),
            Item::Mod(_) | Item::ExternCrate(_) => return,
            _ => panic!("an item of a kind that this test does not know"),
        };
        if is_test(attributes) {
            return;
        }
        if let Some(name) = name
            && self.depth == 0
        {
            self.module.items.insert(name.to_string());
        }
        self.depth += 1;
        visit::visit_item(self, item);
        self.depth -= 1;
    }

    fn visit_item_use(&mut self, it: &'ast syn::ItemUse) {
        if it.leading_colon.is_none() {
            self.read_use(&[], &it.tree, !matches!(it.vis, syn::Visibility::Inherited));
        }
    }

    fn visit_item_impl(&mut self, it: &'ast syn::ItemImpl) {
        if it.trait_.is_none()
            && let syn::Type::Path(self_type) = &*it.self_ty
        {
            let methods = it.items.iter().filter_map(|item| match item {
                syn::ImplItem::Fn(method) if !is_test(&method.attrs) => Some(method.sig.ident.to_string()),
                _ => None,
            });
            self.module.methods.push((names(&self_type.path), methods.collect()));
        }
        visit::visit_item_impl(self, it);
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        if !is_test(&it.attrs) {
            visit::visit_impl_item_fn(self, it);
        }
    }

    fn visit_field(&mut self, it: &'ast syn::Field) {
        if !is_test(&it.attrs) {
            visit::visit_field(self, it);
        }
    }

    fn visit_local(&mut self, it: &'ast syn::Local) {
        if !is_test(&it.attrs) {
            visit::visit_local(self, it);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            self.name_path(names(path));
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, it: &'ast syn::ExprMethodCall) {
        self.calls.insert(it.method.to_string());
        visit::visit_expr_method_call(self, it);
    }

    fn visit_macro(&mut self, it: &'ast syn::Macro) {
        self.read_tokens(it.tokens.clone());
        visit::visit_macro(self, it);
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}

    // `pub(in path)` names a module and takes nothing from it.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}

fn names(path: &syn::Path) -> Names {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

/// Whether the attributes leave an item out of the product: `#[cfg(test)]`, alone or among other conditions.
fn is_test(attributes: &[Attribute]) -> bool {
    fn names_test(tokens: TokenStream) -> bool {
        tokens.into_iter().any(|token| match token {
            TokenTree::Ident(name) => name == "test",
            TokenTree::Group(group) => names_test(group.stream()),
            _ => false,
        })
    }
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && names_test(list.tokens.clone()),
        _ => false,
    })
}

/// The file that `#[path = "..."]` names.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Lines before the first module of tests at the end of the file.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(|pair| {
        pair[0].starts_with("#[cfg(")
            && pair[0].contains("test")
            && pair[1].starts_with("mod ")
            && pair[1].ends_with('{')
    });
    tests.unwrap_or(lines.len())
}

/// The circles of files: sets in which each file imports every other one, directly or through others of the set.
pub fn circles(imports: &Imports) -> Vec<BTreeSet<&Path>> {
    let reached = |from: &Path| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(file) = next.pop() {
            let fresh: Vec<_> = imports[&file].keys().filter(|&to| seen.insert(to.clone())).cloned().collect();
            next.extend(fresh);
        }
        seen
    };
    let reach: BTreeMap<&Path, BTreeSet<PathBuf>> = imports.keys().map(|file| (&**file, reached(file))).collect();
    let mut circles: Vec<BTreeSet<&Path>> = Vec::new();
    for (&file, reached) in &reach {
        if reached.contains(file) && !circles.iter().any(|circle| circle.contains(file)) {
            circles.push(
                reach.keys().copied().filter(|&other| reached.contains(other) && reach[other].contains(file)).collect(),
            );
        }
    }
    circles
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of a crate made of these files, such as `"queue.rs takes Rank from order.rs"`.
    fn imports_of(files: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let short = |path: &Path| path.strip_prefix(folder.path()).unwrap().display().to_string();
        let imports = Sources::read(&folder.path().join("lib.rs")).imports();
        let lines = imports.iter().flat_map(|(from, others)| {
            others.iter().map(|(to, names)| {
                let names: Vec<_> = names.iter().map(String::as_str).collect();
                format!("{} takes {} from {}", short(from), names.join(", "), short(to))
            })
        });
        lines.collect()
    }

    #[test]
    fn an_item_counts_for_the_file_that_defines_it_and_not_for_those_that_hand_it_on() {
        let files = [
            ("lib.rs", "mod order; mod queue; pub use queue::Queue;"),
            ("order.rs", "pub mod rank; pub use self::rank::*;"),
            ("order/rank.rs", "pub struct Rank;"),
            ("queue.rs", "use crate::order; pub struct Queue(order::Rank); #[cfg(test)] use crate::Queue as Other;"),
        ];
        assert_eq!(imports_of(&files), ["queue.rs takes Rank from order/rank.rs"]);
    }

    #[test]
    fn names_in_macros_and_methods_in_another_file_count_too() {
        let files = [
            ("lib.rs", "mod a; mod c; pub fn f() { assert!(a::ready(c::NEVER)); }"),
            ("a.rs", "mod b; pub struct A; impl A { fn f(&self) { self.g(); } } pub fn ready(_: bool) {}"),
            ("a/b.rs", "impl super::A { pub fn g(&self) {} }"),
            ("c/mod.rs", "pub const NEVER: bool = false;"),
        ];
        let expected = [
            "a/b.rs takes A from a.rs",
            "a.rs takes g from a/b.rs",
            "lib.rs takes ready from a.rs",
            "lib.rs takes NEVER from c/mod.rs",
        ];
        assert_eq!(imports_of(&files), expected);
    }

    #[test]
    fn a_parent_and_a_child_that_name_each_other_are_a_circle() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("lib.rs"), "mod child; pub struct Parent(child::Child);").unwrap();
        fs::write(folder.path().join("child.rs"), "pub struct Child(Option<Box<super::Parent>>);").unwrap();
        let imports = Sources::read(&folder.path().join("lib.rs")).imports();
        let circles = circles(&imports);
        assert_eq!(circles.len(), 1);
        assert_eq!(circles[0].len(), 2);
    }
}
