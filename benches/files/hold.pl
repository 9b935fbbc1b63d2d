# Opens COUNT connections to PORT (plain, tls, or h2: HTTP/2 over TLS), has one small file answered over each, says so, and holds them
# until its input ends.
use strict;
use warnings;
use IO::Socket::INET;
use IO::Socket::SSL;

my ($kind, $port, $count) = @ARGV;
my $context = IO::Socket::SSL::SSL_Context->new(SSL_verify_mode => SSL_VERIFY_NONE, $kind eq 'h2' ? (SSL_alpn_protocols => ['h2']) : ());

sub fill { # socket bytes
    my ($socket, $bytes) = @_;
    my $data = '';
    while (length $data < $bytes) {
        sysread($socket, $data, $bytes - length $data, length $data) or die "the connection ended: $!";
    }
    return $data;
}

sub http1 {
    my ($socket) = @_;
    print $socket "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n";
    my ($head, $length) = ('', 0);
    $head .= fill($socket, 1) until $head =~ /\r\n\r\n$/;
    $head =~ m{^HTTP/1.1 200} && $head =~ /^content-length:\s*(\d+)/im or die $head;
    fill($socket, $1);
}

# Settings, and a request: `:method: GET`, `:scheme: https`, `:path: /1`, `:authority: a`.
sub http2 {
    my ($socket) = @_;
    my $fields = "\x82\x87\x04\x02/1\x01\x01a";
    print $socket "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", pack('x3CCN', 4, 0, 0), substr(pack('N', length $fields), 1), pack('CCN', 1, 5, 1), $fields;
    while (1) {
        my ($high, $low, $type, $flags, $stream) = unpack 'CnCCN', fill($socket, 9);
        my $payload = fill($socket, $high << 16 | $low);
        print $socket pack('x3CCN', 4, 1, 0) if $type == 4 && !($flags & 1);
        $payload =~ /^\x88/ or die 'not 200' if $type == 1;
        last if $stream == 1 && $flags & 1 && $type <= 1;
    }
}

my @held;
for (1 .. $count) {
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or die "connection $_: $!";
    if ($kind ne 'plain') {
        $socket = IO::Socket::SSL->start_SSL($socket, SSL_reuse_ctx => $context, SSL_hostname => 'a') or die "connection $_: $SSL_ERROR";
    }
    $kind eq 'h2' ? http2($socket) : http1($socket);
    push @held, $socket;
}
$| = 1;
print "held\n";
<STDIN>;
