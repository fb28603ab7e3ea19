#!/usr/bin/perl
# litd as far as systemd can tell: finds a cap, keeps it in a journal, moves it, feeds the watchdog,
# gives the cap back. The cap is a file where drivers have theirs.
use strict;
use warnings;
use Socket;

my $device = '/sys/devices/virtual/powercap/cap';
my $journal = "$ENV{STATE_DIRECTORY}/journal";
$| = 1;

sub slurp { my ($path) = @_; open my $file, '<', $path or die "$path: $!\n"; local $/; return <$file> }
sub spill { my ($path, $text) = @_; open my $file, '>', $path or die "$path: $!\n"; print $file $text; close $file or die "$path: $!\n" }

sub restore {
    return unless -e $journal;
    my $found = slurp($journal);
    spill($device, $found);
    unlink $journal or die "$journal: $!\n";
    print "restored ", $found;
}

if ($ARGV[0] eq 'restore') {
    restore();
    exit 0;
}

my ($flag, $config) = @ARGV;
if (slurp($config) =~ /bad/) {
    print "$config: bad\n";
    exit 2;
}

socket(my $socket, PF_UNIX, SOCK_DGRAM, 0) or die "socket: $!\n";
sub notify { send($socket, join("\n", @_), 0, pack_sockaddr_un($ENV{NOTIFY_SOCKET})) // die "notify: $!\n" }

my $leave = 0;
my $status = 'steering';
$SIG{TERM} = sub { $leave = 1 };
$SIG{HUP} = sub { $status = 'reloaded' };

restore();
spill($journal, slurp($device));
spill($device, "500\n");

# What the unit must allow and what it must not.
my $admin = "$ENV{RUNTIME_DIRECTORY}/control.sock";
spill($admin, '');
chown -1, scalar getgrnam('litd-admin'), $admin or print "chown: $!\n";
slurp("/proc/1/environ") and -e readlink("/proc/1/fd/0") or print "fds: $!\n";
my $home = (getpwuid 0)[7];
for my $path ('/usr/forbidden', '/etc/litd/forbidden', '/sys/kernel/forbidden', "$home/forbidden") {
    if (open my $file, '>', $path) { print "may write $path\n" }
}

notify('READY=1');
until ($leave) {
    notify('WATCHDOG=1', "STATUS=$status");
    select undef, undef, undef, 0.1;
}
notify('STOPPING=1');
restore();
