<?php
// A page that needs the disk: a download of as many MiB as it costs, from a random place of a file much larger than the
// memory there is to cache it. It is read twice, as downloads with a digest in their head are: once for the digest, once to be
// sent (here it is only compared, the body stays small). Alone, the second time comes from the cache. Of many at once, each
// drives the others' out of it, and the disk has to read it again.
require __DIR__ . '/common.php';

const MIB = 1048576;
const PART = 131072;
const FADVISE_RANDOM = 1;
const FADVISE_DONTNEED = 4;

/** Bytes that this process has had read from the disk. */
function read_from_disk(): int
{
    return preg_match('/^read_bytes: (\d+)/m', (string) @file_get_contents('/proc/self/io'), $found) ? (int) $found[1] : -1;
}

function digest(FFI $system, int $content, int $from, int $length): string
{
    $part = $system->new('char[' . PART . ']');
    $digest = hash_init('xxh3');
    for ($to = $from + $length; $from < $to; $from += $got) {
        $got = $system->pread($content, $part, min($to - $from, PART), $from);
        if ($got <= 0) {
            throw new RuntimeException('the content file could not be read, or is shorter than it was');
        }
        hash_update($digest, FFI::string($part, $got));
    }
    return hash_final($digest);
}

$path = getenv('SITE_CONTENT');
$places = intdiv(filesize($path), MIB);
$cost = cost('disk', $places);
$length = $cost * MIB;
$from = random_int(0, intdiv($places, $cost) - 1) * $length;
$system = FFI::cdef('int open(const char *, int, ...); int close(int); long pread(int, void *, size_t, long);
    int posix_fadvise(int, long, long, int);');
$content = $system->open($path, 0);
// Some machines read 128 KiB ahead and some 8 MiB: here none does, so that a page costs the same everywhere.
$system->posix_fadvise($content, 0, 0, FADVISE_RANDOM);
if (getenv('SITE_CACHE') === 'unlimited') {
    // The system may have all of the file in its cache: it is told to forget this part.
    $system->posix_fadvise($content, $from, $length, FADVISE_DONTNEED);
}
$before = read_from_disk();
$first = digest($system, $content, $from, $length);
if ($first !== digest($system, $content, $from, $length)) {
    throw new RuntimeException('the content file changed while it was read');
}
$read = read_from_disk() - $before;
$system->close($content);
done('disk', $cost, ['read_mib' => round($read / MIB, 1)]);
