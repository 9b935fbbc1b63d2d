<?php
// A page that needs the database: somebody looks through the catalogue and orders four of this week's offers. Each unit of cost
// is one category looked through, some hundred rows all over a table larger than the database's memory: half of them before the
// order, half within it, while the stock of what is ordered so far is locked. Everybody wants the same few offers, in an order of
// their own, so orders wait for each other, and now and then two wait for each other in a circle. The database then undoes one
// of them, and it is begun anew.
require __DIR__ . '/common.php';

const ITEMS = 4;
const ATTEMPTS = 100;
const DEADLOCK = 1213;
const WAITED_TOO_LONG = 1205;

function look_through(mysqli $shop, int $categories): int
{
    $found = 0;
    for (; $categories > 0; $categories--) {
        $category = random_int(0, (int) getenv('SITE_CATEGORIES') - 1);
        $best = $shop->query("SELECT id, price FROM product WHERE category = $category ORDER BY sold DESC, description LIMIT 10");
        $found += $best->num_rows;
    }
    return $found;
}

function order(mysqli $shop, int $cost): void
{
    $offers = range(1, (int) getenv('SITE_OFFERS'));
    shuffle($offers);
    $shop->begin_transaction();
    $customer = random_int(1, 100000);
    $shop->query("INSERT INTO purchase (customer) VALUES ($customer)");
    $purchase = $shop->insert_id;
    foreach (array_slice($offers, 0, ITEMS) as $nth => $offer) {
        $shop->query("UPDATE stock SET amount = amount - 1 WHERE product = $offer");
        look_through($shop, intdiv($cost * ($nth + 1), 2 * ITEMS) - intdiv($cost * $nth, 2 * ITEMS));
        $shop->query("INSERT INTO purchase_line (purchase, product) VALUES ($purchase, $offer)");
    }
    $shop->commit();
}

$cost = cost('db', 10000);
$undone = 0;
try {
    mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
    $shop = new mysqli('p:localhost', 'shop', '', 'shop', 0, getenv('SITE_DATABASE'));
    look_through($shop, $cost - intdiv($cost, 2));
    while (true) {
        try {
            order($shop, $cost);
            break;
        } catch (mysqli_sql_exception $error) {
            $again = in_array($error->getCode(), [DEADLOCK, WAITED_TOO_LONG], true);
            $shop->rollback();
            if (!$again || ++$undone == ATTEMPTS) {
                throw $error;
            }
        }
    }
} catch (mysqli_sql_exception $error) {
    http_response_code(503);
    header('Content-Type: text/plain');
    exit('db: ' . $error->getMessage() . "\n");
}
done('db', $cost, ['undone' => $undone]);
