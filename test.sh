#!/usr/bin/env bash
# Every proof of heed, on a machine with Go and a Debian-like system.
#
#   ./test.sh           all tests, in short form
#   ./test.sh -long     the same in full: longer runs, and fuzzing
#   ./test.sh -faults   the rules of the client, and what breaks when one does
#
# What the tests talk to, redis-server, gateways and a browser, is installed through
# the package manager if it is missing; the tests start their own on free ports, and
# stop it.
set -euo pipefail
cd "$(dirname "$0")"

staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.8.2

say() { printf '\n== %s\n' "$*"; }

die() {
	printf 'test.sh: %s\n' "$*" >&2
	exit 1
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

need_go() {
	command -v go >/dev/null || die "go is missing: install Go 1.26 or later, https://go.dev/dl"
}

# need PROGRAM PACKAGE...: installs the first of some packages that there is.
need() {
	program=$1
	shift
	PATH=$PATH:/usr/sbin command -v "$program" >/dev/null && return
	say "installing $program"
	command -v apt-get >/dev/null || die "$program is missing, and so is apt-get: install it"
	[ -n "${updated-}" ] || as_root apt-get update -qq || die "$program is missing, and cannot be installed without root: apt-get install $1"
	updated=yes
	for package in "$@"; do
		as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" && return
	done
	die "$program cannot be installed: apt-get install $1"
}

# need_servers installs what the tests talk to. Each test starts its own.
need_servers() {
	need redis-server redis-server
	need redis-cli redis-tools
	need curl curl
	need nginx nginx-light nginx
	need haproxy haproxy
	need chromium chromium
	need caddy caddy varnish # the second has no export to be tested, but passes fields
	need prometheus prometheus
	need promtool prometheus
}

modules() { find . -name go.mod -not -path '*/testdata/*' -exec dirname {} \; | sort; }

check_style() {
	say "gofmt, vet, staticcheck"
	unformatted=$(gofmt -l .)
	[ -z "$unformatted" ] || die "gofmt would change: $unformatted"
	for module in $(modules); do
		(cd "$module" && go vet ./... && go run "$staticcheck" ./...)
	done
}

# run_tests runs them with the race detector; but those of the SDKs, which take it two
# minutes to compile, only if it is told how often.
run_tests() {
	for module in $(modules); do
		race=-race
		[ "$module $#" != "./examples/sdks 0" ] || race=
		say "go test $race, module $module"
		(cd "$module" && go test $race -shuffle=on -timeout 20m "$@" ./...)
	done
}

# run_long_forms runs the packages some of whose tests last longer if HEED_LONG is
# set, and shows their figures.
run_long_forms() {
	for package in $(grep -rl 'HEED_LONG' --include='*_test.go' . | xargs -n 1 dirname | sort -u); do
		say "the long forms of $package"
		(cd "$package" && HEED_LONG=true go test -race -count 1 -timeout 30m -v .)
	done
}

fuzz() {
	for package in $(go list ./...); do
		for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz' || true); do
			say "fuzzing $package $target for $1"
			go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 10x "$package"
		done
	done
}

need_go
export CI=true # without these servers the tests fail, instead of skipping
case "${1-}" in
"")
	need_servers
	check_style
	run_tests
	;;
-long)
	need_servers
	check_style
	run_tests -count 3
	run_long_forms
	fuzz 60s
	go run ./internal/faults
	go run ./examples/workers
	;;
-faults)
	go run ./internal/faults
	;;
*)
	die "usage: ./test.sh [-long | -faults]"
	;;
esac
