<?php
// What the pages have in common: what a page costs, and what it says when it is done.

/** The cost asked for with `?cost=`, or the default of the site. */
function cost(string $page, int $most): int
{
    $asked = $_GET['cost'] ?? getenv('SITE_' . strtoupper($page) . '_COST');
    if (!is_string($asked) || !preg_match('/^[0-9]{1,9}$/D', $asked) || (int) $asked < 1 || (int) $asked > $most) {
        http_response_code(400);
        header('Content-Type: text/plain');
        exit("$page: cost must be a number from 1 to $most\n");
    }
    return (int) $asked;
}

/** The whole body: one line of JSON. */
function done(string $page, int $cost, array $more): void
{
    $took = (hrtime(true) - $GLOBALS['began']) / 1e6;
    $use = getrusage();
    foreach (['utime', 'stime'] as $kind) {
        $cpu = ($cpu ?? 0) + ($use["ru_$kind.tv_sec"] - $GLOBALS['use']["ru_$kind.tv_sec"]) * 1e3
            + ($use["ru_$kind.tv_usec"] - $GLOBALS['use']["ru_$kind.tv_usec"]) / 1e3;
    }
    header('Content-Type: application/json');
    header('Cache-Control: no-store');
    echo json_encode(['page' => $page, 'cost' => $cost, 'ms' => round($took, 1), 'cpu_ms' => round($cpu, 1)] + $more), "\n";
}

$began = hrtime(true);
$use = getrusage();
