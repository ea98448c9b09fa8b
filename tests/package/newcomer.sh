#!/usr/bin/env bash
# Does what the pages tell a newcomer, in a Debian that has little more than apt: no GPU, no driver, no systemd. Installs the
# packages with README's command, uses them, and purges them with install.md's command. `./dev distro` runs this as root, in
# a folder with README.md, docs and build-package. Ends with 1 at the first thing that does not hold.
set -euo pipefail

fail() {
        printf 'newcomer: %s\n' "$*" >&2
        exit 1
}
named_sublet() { find / -xdev \( -path /proc -o -path "$PWD" \) -prune -o -name '*sublet*' -print | sort; }
# Prints the command of a page that begins with these words. Root needs no sudo, and nobody is here to answer apt.
command_of() { grep -m 1 "^    sudo $2 " "$1" | sed 's/^ *sudo apt /apt-get -qq -y /; s/ #.*//'; }
# must STATUS TEXT COMMAND...: the command must end with STATUS, and say TEXT.
must() {
        local status=0 said
        said=$("${@:3}" 2>&1 </dev/null) || status=$?
        [ "$status" -eq "$1" ] || fail "'${*:3}' ends with $status, not $1: $said"
        grep -q -- "$2" <<<"$said" || fail "'${*:3}' does not say '$2': $said"
        ! grep -q "core dumped\|internal error" <<<"$said" || fail "'${*:3}' crashes: $said"
}

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
before=$(named_sublet)
eval "$(command_of README.md 'apt install')" >/dev/null

must 0 "^Under sublet both took" sublet demo --fast
must 0 "can share the GPU here" sublet doctor --sim
must 0 "all memory is as it must be" sublet run --sim -- python3 /usr/share/doc/sublet/docs/examples/gpu.py 64 1
must 0 "" sublet stop --sim
must 1 "no NVIDIA driver" sublet doctor
must 1 "no subletd is running" sublet status
must 1 "no GPU is known here: is NVIDIA's driver loaded" sublet submit -- true
must 0 "" sublet run -- true
must 0 "" sublet stop

# Where no systemd starts the machine's daemon, root does.
subletd 2>/dev/null &
daemon=$!
until [ -S /run/sublet/client.sock ]; do
        kill -0 "$daemon" || fail "subletd has ended"
        sleep 0.1
done
must 0 "no GPU is known yet" sublet status
kill "$daemon"
wait "$daemon" || fail "subletd ends with $?"

eval "$(command_of docs/install.md 'apt purge')" >/dev/null
rm -r /tmp/sublet-* ~/.cache/sublet # what programs leave of their users: install.md names it
after=$(named_sublet)
[ "$before" = "$after" ] || fail "files are left: $(comm -13 <(echo "$before") <(echo "$after"))"
echo "newcomer: installed, used and purged"
