<?php
// Fills the database: run once by `site start`, with the path of the database's socket.
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
[, $socket, $products, $categories, $offers] = $argv;
$root = new mysqli('localhost', 'root', '', '', 0, $socket);
foreach ([
    'DROP DATABASE IF EXISTS shop',
    'CREATE DATABASE shop CHARACTER SET latin1',
    'USE shop',
    'CREATE TABLE product (id INT PRIMARY KEY, category INT NOT NULL, price INT NOT NULL, sold INT NOT NULL,
        name VARCHAR(40) NOT NULL, description VARCHAR(400) NOT NULL, KEY (category)) ENGINE InnoDB',
    'CREATE TABLE stock (product INT PRIMARY KEY, amount BIGINT NOT NULL) ENGINE InnoDB',
    'CREATE TABLE purchase (id BIGINT AUTO_INCREMENT PRIMARY KEY, customer INT NOT NULL,
        at TIMESTAMP DEFAULT CURRENT_TIMESTAMP) ENGINE InnoDB',
    'CREATE TABLE purchase_line (purchase BIGINT, product INT, PRIMARY KEY (purchase, product)) ENGINE InnoDB',
    "INSERT INTO stock SELECT seq, 1000000000 FROM seq_1_to_$offers",
    "CREATE OR REPLACE USER shop@localhost",
    "GRANT SELECT, INSERT, UPDATE ON shop.* TO shop@localhost",
] as $statement) {
    $root->query($statement);
}
// Products of one category lie far apart, as they do in a shop that grew over the years.
for ($from = 1; $from <= $products; $from += 20000) {
    $to = min($products, $from + 19999);
    $root->query("INSERT INTO product SELECT seq, seq * 7919 % $categories, 100 + seq * 31 % 9900, seq * 104729 % 5000,
        CONCAT('product ', seq), REPEAT(SHA2(seq, 256), 6) FROM seq_{$from}_to_$to");
}
