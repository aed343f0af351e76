#!/usr/bin/env bash
# The tests of heed.
#
#   ./test.sh           gofmt, vet and tests of the shipped modules; needs Go and redis-server
#   ./test.sh -all      also staticcheck, gateways, a browser, Prometheus, SDKs and rivals
#   ./test.sh -long     all of that, long tests, measurements and fuzzing
#   ./test.sh -faults   whether the tests of the client's rules find faults in the client
#
# If redis-server is missing, it is installed with apt-get; -all and -long install more programs.
# Programs that cannot be installed, and modules that cannot be downloaded, are left out and
# listed at the end. Tests start their servers on free ports, and stop them.
set -uo pipefail
cd "$(dirname "$0")"

shipped=(. ./serverside/metrics)
shipped_if_downloadable=(./otelheed)
extra=(
	./benchmarks ./examples/frameworks ./examples/migrating ./examples/sdks
	./internal/export/oas ./serverside/live/browsertest ./tools
)

failed=()
left_out=()

say() { printf '\n== %s\n' "$*"; }

die() {
	printf 'test.sh: %s\n' "$*" >&2
	exit 1
}

# step TITLE COMMAND... runs a command. If it fails, the script continues, and fails at its end.
step() {
	say "$1"
	"${@:2}" || failed+=("$1")
}

summary() {
	say "summary"
	for entry in "${left_out[@]}"; do printf 'left out: %s\n' "$entry"; done
	for entry in "${failed[@]}"; do printf 'failed: %s\n' "$entry"; done
	printf '%d failed, %d left out, %d s\n' ${#failed[@]} ${#left_out[@]} $SECONDS
	[ ${#failed[@]} = 0 ]
}

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		sudo -n "$@"
	fi
}

# install PROGRAM PACKAGE installs a program if it is missing. If that fails, reason says why.
install() {
	PATH=$PATH:/usr/sbin command -v "$1" >/dev/null && return
	say "installing $1"
	command -v apt-get >/dev/null || { reason="not installed, and there is no apt-get"; return 1; }
	[ -n "${updated-}" ] || as_root apt-get update -qq
	updated=yes
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$2" >/dev/null ||
		{ reason="apt-get install $2 failed (no such package, or no root)"; return 1; }
}

# need installs a program that is required, want one that can be left out.
need() { install "$@" || die "$1 is missing: $reason"; }
want() { install "$@" || left_out+=("$1: $reason"); }

want_programs() {
	want redis-cli redis-tools
	want valkey-server valkey-server
	want curl curl
	want nginx nginx-light
	want haproxy haproxy
	want caddy caddy
	want varnishd varnish
	[ -n "$(find /usr/lib -name libvmod_vsthrottle.so)" ] || want libvmod_vsthrottle varnish-modules
	want chromium chromium
	want prometheus prometheus
	want promtool prometheus
}

formatted() {
	local unformatted
	unformatted=$(gofmt -l .) || return
	[ -z "$unformatted" ] || { printf 'gofmt would change: %s\n' "$unformatted"; return 1; }
}

# why_not_downloadable MODULE PACKAGES prints why packages, or their imports, cannot be
# downloaded. It prints only errors of the network or the proxy: any other error is a failure.
why_not_downloadable() {
	go -C "$1" list -deps -test "$2" 2>&1 >/dev/null | grep -v '^go: downloading' | grep -iE -m 1 "$network_error"
}
network_error=': (40[1347]|410|429|5[0-9][0-9]) [A-Z]|disabled by GOPROXY|dial tcp|proxyconnect'
network_error+='|no such host|name resolution|handshake timeout|i/o timeout|Client\.Timeout'
network_error+='|connection (refused|reset|timed out)|x509:|: EOF$|stream error'

# want_packages sets packages: for each extra module, the packages that can be downloaded.
declare -A packages=()
want_packages() {
	local module package all
	for module in "${extra[@]}"; do
		if ! all=$(go -C "$module" list ./...); then
			reason=$(why_not_downloadable "$module" ./...)
			if [ -n "$reason" ]; then
				left_out+=("module $module: $reason")
			else
				failed+=("packages of module $module")
			fi
			continue
		fi
		for package in $all; do
			reason=$(why_not_downloadable "$module" "$package")
			if [ -n "$reason" ]; then
				left_out+=("$package: $reason")
			else
				packages[$module]+=" $package"
			fi
		done
	done
}

# want_shipped adds the modules that can be downloaded to shipped.
want_shipped() {
	local module
	for module in "${shipped_if_downloadable[@]}"; do
		reason=$(why_not_downloadable "$module" ./...)
		if [ -n "$reason" ]; then
			left_out+=("module $module: $reason")
		else
			shipped+=("$module")
		fi
	done
}

test_shipped() {
	step "gofmt" formatted
	want_shipped
	for module in "${shipped[@]}"; do
		step "vet of module $module" go -C "$module" vet -race ./... # fills the build cache for the tests
		step "tests of module $module" go -C "$module" test -race -vet=off -shuffle=on -timeout 60m "$@" ./...
	done
}

# test_extra does not use the race detector: compiling the SDKs for it takes minutes.
test_extra() {
	for module in "${!packages[@]}"; do
		step "vet of module $module" go -C "$module" vet ${packages[$module]}
		step "tests of module $module" go -C "$module" test -vet=off -shuffle=on -timeout 20m ${packages[$module]}
	done
}

# run_staticcheck checks all packages.
run_staticcheck() {
	reason=$(why_not_downloadable tools tool)
	if [ -n "$reason" ]; then
		left_out+=("staticcheck: $reason")
		return
	fi
	local bin
	bin=$(mktemp -d)
	step "building staticcheck" go -C tools build -o "$bin/" tool
	if [ ! -x "$bin/staticcheck" ]; then
		rm -r "$bin"
		return
	fi
	for module in "${shipped[@]}"; do
		step "staticcheck of module $module" env -C "$module" "$bin/staticcheck" ./...
	done
	for module in "${!packages[@]}"; do
		step "staticcheck of module $module" env -C "$module" "$bin/staticcheck" ${packages[$module]}
	done
	rm -r "$bin"
}

# test_long_forms runs the packages with long tests, one after the other, and shows what they
# measure.
test_long_forms() {
	for package in $(grep -rlE 'testenv\.(Need)?Long\(' --include='*_test.go' . | xargs -n 1 dirname | sort -u); do
		[ -z "$(why_not_downloadable "$package" .)" ] || continue # listed already
		step "long tests of $package" go -C "$package" test -race -count 1 -timeout 2h -v .
	done
}

fuzz() {
	for package in $(go list ./...); do
		for target in $(go test -list '^Fuzz' "$package" | grep '^Fuzz'); do
			step "fuzzing $package $target for $1" \
				go test -run '^$' -fuzz "^$target\$" -fuzztime "$1" -fuzzminimizetime 10x "$package"
		done
	done
}

command -v go >/dev/null || die "go is missing: install Go 1.26 or later, https://go.dev/dl"
export CI=true # without redis-server, tests fail instead of skipping
export GORACE="atexit_sleep_ms=0 ${GORACE-}" # or each process waits a second at exit
unset HEED_TEST
case "${1-}" in
"")
	need redis-server redis-server
	test_shipped
	;;
-all)
	need redis-server redis-server
	want_programs
	want_packages
	export HEED_TEST=all
	test_shipped
	run_staticcheck
	test_extra
	;;
-long)
	need redis-server redis-server
	want_programs
	want_packages
	export HEED_TEST=all
	test_shipped -count 3
	run_staticcheck
	test_extra
	export HEED_TEST=long
	test_long_forms
	fuzz 60s
	step "faults in the client" go run ./internal/faults
	step "example workers" go run ./examples/workers
	;;
-faults)
	step "faults in the client" go run ./internal/faults
	;;
*)
	die "usage: ./test.sh [-all | -long | -faults]"
	;;
esac
summary
