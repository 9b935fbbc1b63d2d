<?php
// A page that needs the processor: a thousand steps for each unit of cost, all over a table of 1 MiB, so that requests that
// run at once also take the processor's cache from each other.
require __DIR__ . '/common.php';

const ENTRIES = 65536;

$cost = cost('cpu', 100000);
$table = range(0, ENTRIES - 1);
$at = random_int(0, ENTRIES - 1);
for ($unit = 0; $unit < $cost; $unit++) {
    for ($step = 0; $step < 1000; $step++) {
        $at = ($at * 25173 + $table[$at] + 13849) & (ENTRIES - 1);
        $table[$at] = ($table[$at] ^ $at) + $step & (ENTRIES - 1);
    }
}
done('cpu', $cost, ['result' => $at]);
