# Opens COUNT connections to PORT, asks once over each, says so, and holds them until its input ends.
use strict;
use warnings;
use IO::Socket::INET;

my ($port, $count) = @ARGV;
my @held;
for (1 .. $count) {
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or die "connection $_: $!";
    print $socket "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    my ($head, $length) = ('', 0);
    while (my $line = <$socket>) {
        $length = $1 if $line =~ /^content-length:\s*(\d+)/i;
        last if $line eq "\r\n";
    }
    read($socket, my $body, $length);
    push @held, $socket;
}
$| = 1;
print "held\n";
<STDIN>;
