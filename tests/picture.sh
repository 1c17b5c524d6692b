#!/bin/sh
# Makes the picture of the README, man/screen.svg, from a real run: moetop in a tmux pane, a question, the pane as it stands in the middle
# of the answer, cell by cell as SVG. Needs tmux and perl. Usage: tests/picture.sh [OUT.svg [WIDTH HEIGHT [MOETOP ARGUMENTS]]]
set -e
root=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$root/man/screen.svg} width=${2:-120} height=${3:-38}
[ $# -ge 3 ] && shift 3 || set --
home=$(mktemp -d) socket=moetop-picture-$$
trap 'tmux -L $socket kill-server 2>/dev/null || :; rm -rf "$home" 2>/dev/null || { sleep 1; rm -rf "$home"; }' EXIT
t() { tmux -L $socket "$@"; }
t -f /dev/null new-session -d -s p -x "$width" -y "$height" \
    "cd '$root' && LC_ALL=C.UTF-8 TERM=tmux-256color XDG_STATE_HOME='$home' XDG_CONFIG_HOME='$home' XDG_CACHE_HOME='$home' ./moetop --seed 7 $*"
wait_for() { # text, tries of 0.1 s
    i=0
    until t capture-pane -p -t p | grep -q "$1"; do
        i=$((i + 1)); [ $i -lt "$2" ] || { echo "picture: no \"$1\" on the screen" >&2; exit 1; }
        sleep 0.1
    done
}
wait_for 'or /help' 300
t send-keys -t p 'Tell me a story about a brave fox.' Enter
wait_for 'tokens · .* s' 900
t send-keys -t p 'Tell me another story, about a dragon.' Enter
wait_for 'Esc stops' 100; sleep 2.2
t send-keys -t p 'what I type while it talks'
sleep 0.4
t capture-pane -p -e -t p | perl -CS -Mutf8 -e '
    my ($w, $h, $cw, $ch) = (@ARGV, 8.4, 17);
    my @base = qw(1c1c1c cc6666 8fb573 d7af5f 5f87d7 b294bb 5fafaf c6c6c6 767676 ff8787 afd787 ffd787 87afff d7afff 87d7d7 ffffff);
    my ($ground, $ink) = ("#14161b", "#d4d7dd");
    sub palette { my $i = shift; return "#$base[$i]" if $i < 16;
        if ($i < 232) { my @v = (0, 95, 135, 175, 215, 255); $i -= 16;
            return sprintf "#%02x%02x%02x", $v[$i / 36], $v[$i / 6 % 6], $v[$i % 6] }
        my $g = 8 + ($i - 232) * 10; return sprintf "#%02x%02x%02x", $g, $g, $g }
    sub f { my $s = sprintf "%.2f", shift; $s =~ s/\.?0+$//; $s }
    my (@rects, @texts, $y, $fg, $bg, $bold, $dim, $italic, $under, $rev);     # styles go on from row to row
    sub rect { my ($x, $y, $w, $h, $c) = @_; push @rects, [f($x), f($y), $w, f($h), $c] }
    $y = 0;
    while (my $line = <STDIN>) {
        chomp $line;
        my $x = 0;
        my @run;
        my $flush = sub { push @texts, [@run] if @run && $run[3] =~ /\S/; @run = () };
        while (length $line) {
            if ($line =~ s/^\e\[([\d;]*)m//) {
                my @p = split /;/, $1 eq "" ? "0" : $1;
                while (@p) { my $p = shift @p;
                    if ($p == 0) { ($fg, $bg, $bold, $dim, $italic, $under, $rev) = () }
                    elsif ($p == 1) { $bold = 1 } elsif ($p == 2) { $dim = 1 } elsif ($p == 3) { $italic = 1 }
                    elsif ($p == 4) { $under = 1 } elsif ($p == 7) { $rev = 1 } elsif ($p == 39) { undef $fg } elsif ($p == 49) { undef $bg }
                    elsif ($p == 38 || $p == 48) { shift @p; my $c = palette(shift @p); $p == 38 ? ($fg = $c) : ($bg = $c) }
                    elsif ($p >= 30 && $p < 38) { $fg = palette($p - 30) } elsif ($p >= 40 && $p < 48) { $bg = palette($p - 40) }
                    elsif ($p >= 90 && $p < 98) { $fg = palette($p - 82) } elsif ($p >= 100) { $bg = palette($p - 92) } }
                next }
            next if $line =~ s/^\e[\(\)].|^\e\][^\a]*\a|^[\x0e\x0f]//;
            $line =~ s/^(\X)//s; my $g = $1; my $c = ord $g;
            my $n = $g =~ /^[\x{1100}-\x{115f}\x{2e80}-\x{a4cf}\x{ac00}-\x{d7a3}\x{f900}-\x{faff}\x{ff00}-\x{ff60}\x{1f300}-\x{1faff}]/ ? 2 : 1;
            my ($front, $back) = ($fg // $ink, $bg); ($front, $back) = ($back // $ground, $front) if $rev;
            my ($px, $py) = ($x * $cw, $y * $ch);
            rect($px, $py, f($n * $cw), $ch, $back) if defined $back;
            if ($c == 0x2580) { rect($px, $py, f($cw), $ch / 2, $front) }
            elsif ($c >= 0x2581 && $c <= 0x2588) { my $k = ($c - 0x2580) / 8; rect($px, $py + $ch * (1 - $k), f($cw), $ch * $k, $front) }
            elsif ($c > 0x2588 && $c <= 0x258f) { rect($px, $py, f($cw * (0x2590 - $c) / 8), $ch, $front) }
            elsif ($c == 0x2501 || $c == 0x2578) { rect($px, $py + $ch / 2 - 1, f($c == 0x2501 ? $cw : $cw / 2), 2, $front) }
            elsif ($c == 0x2500 || $c == 0x2502 || $c == 0x251c || $c == 0x2524 || $c == 0x253c) {
                my ($mx, $my) = ($px + $cw / 2, $py + $ch / 2);
                rect($c == 0x251c ? $mx : $px, $my - 0.5, f($c == 0x2500 || $c == 0x253c ? $cw : $cw / 2), 1, $front) if $c != 0x2502;
                rect($mx - 0.5, $py, 1, $ch, $front) if $c != 0x2500 }
            elsif ($c > 0x2800 && $c <= 0x28ff) { my @d = ([0,0],[0,1],[0,2],[1,0],[1,1],[1,2],[0,3],[1,3]);
                for my $b (0 .. 7) { rect($px + ($d[$b][0] + 0.12) * $cw / 2, $py + ($d[$b][1] + 0.12) * $ch / 4, f($cw * 0.38), $ch * 0.19, $front) if ($c - 0x2800) >> $b & 1 } }
            elsif ($g ne " ") {
                my $style = ($bold ? " font-weight=\"bold\"" : "") . ($dim ? " opacity=\".65\"" : "") . ($italic ? " font-style=\"italic\"" : "") .
                            ($under ? " text-decoration=\"underline\"" : "");
                $flush->() if @run && ($run[4] ne $front || $run[5] ne $style || $run[0] + $run[2] != $x);
                @run = ($x, $y, 0, "", $front, $style) unless @run;
                $run[3] .= $g; $run[2] += $n; $x += $n; next }
            elsif (@run) { $run[3] .= " "; $run[2]++; $x++; next }
            $x += $n }
        $flush->(); $y++ }
    my ($W, $H) = (f($w * $cw + 24), $h * $ch + 24);
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 $W $H\" width=\"$W\" height=\"$H\" role=\"img\" aria-label=\"moetop in a terminal\">\n";
    print "<rect width=\"$W\" height=\"$H\" rx=\"8\" fill=\"$ground\"/>\n<g transform=\"translate(12 12)\" shape-rendering=\"crispEdges\">\n";
    # Neighbours of one colour are one rectangle.
    my $last;
    for my $r (@rects, undef) {
        if ($r && $last && $r->[1] eq $last->[1] && $r->[3] eq $last->[3] && $r->[4] eq $last->[4] && abs($last->[0] + $last->[2] - $r->[0]) < 0.05) {
            $last->[2] = f($last->[2] + $r->[2]); next }
        print "<rect x=\"$last->[0]\" y=\"$last->[1]\" width=\"$last->[2]\" height=\"$last->[3]\" fill=\"$last->[4]\"/>\n" if $last;
        $last = $r }
    print "</g>\n<g transform=\"translate(12 12)\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" xml:space=\"preserve\">\n";
    for my $t (@texts) {
        my ($x, $y, $n, $s, $c, $style) = @$t; $s =~ s/ +$//; my $len = 0;
        for my $g ($s =~ /\X/g) { $len += $g =~ /^[\x{1100}-\x{115f}\x{2e80}-\x{a4cf}\x{ac00}-\x{d7a3}\x{1f300}-\x{1faff}]/ ? 2 : 1 }
        $s =~ s/&/&amp;/g; $s =~ s/</&lt;/g;
        printf "<text x=\"%s\" y=\"%s\" textLength=\"%s\" fill=\"%s\"%s>%s</text>\n", f($x * $cw), f($y * $ch + 13), f($len * $cw), $c, $style, $s }
    print "</g>\n</svg>\n";
' "$width" "$height" > "$out.part"
mv "$out.part" "$out"
echo "$out"
