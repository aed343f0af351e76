// Package gatewaytest runs real gateways and proxies for tests.
package gatewaytest

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/heedhttp/heed/internal/daemon"
	"github.com/heedhttp/heed/internal/testenv"
)

// A Limit is the limit of a gateway.
type Limit struct {
	Rate   int // requests per second and address
	Burst  int // further requests at once; only for Nginx
	Status int // status of refusals
}

// Nginx starts an nginx with limit_req in front of the server at addr (host:port), and returns its
// URL. It neither delays requests nor adds header fields. It stops with the test, which is skipped if
// nginx is not installed.
func Nginx(t testing.TB, addr string, l Limit) (url string) {
	t.Helper()
	burst := ""
	if l.Burst > 0 {
		burst = fmt.Sprintf(" burst=%d nodelay", l.Burst)
	}
	return NginxWith(t, addr, fmt.Sprintf(limitReq, l.Rate, l.Status, burst))
}

const limitReq = `
	limit_req_zone $binary_remote_addr zone=clients:1m rate=%dr/s;
	limit_req_status %d;
	limit_req zone=clients%s;
`

// NginxWith is Nginx with directives in its http block. If they are invalid, the test fails.
func NginxWith(t testing.TB, addr, directives string) (url string) {
	t.Helper()
	path := testenv.Program(t, "nginx", "/usr/sbin/nginx")
	return start(t, func(dir string, port int) *exec.Cmd { return nginx(t, path, dir, port, addr, directives) })
}

// CheckNginx lets nginx check directives for its http block.
func CheckNginx(t testing.TB, directives string) {
	t.Helper()
	cmd := nginx(t, testenv.Program(t, "nginx", "/usr/sbin/nginx"), t.TempDir(), 1024, "127.0.0.1:1", directives)
	cmd.Args = append(cmd.Args, "-t")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("gatewaytest: nginx -t: %v\n%s", err, out)
	}
}

func nginx(t testing.TB, path, dir string, port int, addr, directives string) *exec.Cmd {
	file := write(t, dir, "nginx.conf", fmt.Sprintf(nginxConf, directives, addr, port))
	return exec.Command(path, "-p", dir, "-c", file, "-e", "stderr", "-g", "daemon off; master_process off; user root;")
}

const nginxConf = `
worker_processes 1;
pid nginx.pid;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	limit_req_log_level info;
	%s
	upstream service { server %s; keepalive 64; }
	server {
		listen 127.0.0.1:%d;
		keepalive_requests 1000000;
		location / {
			proxy_pass http://service;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}
}
`

// Balancer starts an nginx in front of several servers (host:port), and returns its URL. If one is
// gone, it asks another. It stops with the test, which is skipped if nginx is not installed, or fails
// if CI is "true".
func Balancer(t testing.TB, addrs ...string) (url string) {
	t.Helper()
	path := testenv.Program(t, "nginx", "/usr/sbin/nginx")
	return start(t, func(dir string, port int) *exec.Cmd {
		file := write(t, dir, "nginx.conf", fmt.Sprintf(balancerConf, strings.Join(addrs, "; server "), port))
		return exec.Command(path, "-p", dir, "-c", file, "-e", "stderr", "-g", "daemon off; master_process off; user root;")
	})
}

const balancerConf = `
worker_processes 1;
pid nginx.pid;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	upstream service { server %s; keepalive 64; }
	server {
		listen 127.0.0.1:%d;
		location / {
			proxy_pass http://service;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
		}
	}
}
`

// HAProxy is Nginx with a haproxy, which counts the requests of the last second in a stick table,
// including refused ones.
func HAProxy(t testing.TB, addr string, l Limit) (url string) {
	t.Helper()
	return HAProxyThat(t, addr, l, fmt.Sprintf("deny deny_status %d", l.Status))
}

// HAProxyThat is HAProxy with another action than deny: "reject", or "tarpit" for a second.
func HAProxyThat(t testing.TB, addr string, l Limit, action string) (url string) {
	t.Helper()
	path := testenv.Program(t, "haproxy", "/usr/sbin/haproxy")
	return start(t, func(dir string, port int) *exec.Cmd {
		file := write(t, dir, "haproxy.cfg", fmt.Sprintf(haproxyCfg, port, action, l.Rate, addr))
		return exec.Command(path, "-db", "-f", file)
	})
}

const haproxyCfg = `
global
	maxconn 1000
defaults
	mode http
	timeout connect 1s
	timeout client 30s
	timeout server 30s
frontend clients
	bind 127.0.0.1:%d
	stick-table type ip size 1k expire 10s store http_req_rate(1s)
	http-request track-sc0 src
	http-request %s if { sc_http_req_rate(0) gt %d }
	default_backend service
backend service
	server service %s
`

// Proxy starts a reverse proxy without limits in front of the server at addr: a caddy, or a varnishd
// if caddy is not installed.
func Proxy(t testing.TB, addr string) (url string) {
	t.Helper()
	path := testenv.Program(t, "caddy", "varnishd", "/usr/sbin/varnishd")
	return start(t, func(dir string, port int) *exec.Cmd {
		if filepath.Base(path) == "caddy" {
			return caddy(t, path, dir, fmt.Sprintf(caddyfile, port, addr))
		}
		return varnish(t, path, dir, port, fmt.Sprintf(vcl, hostOf(addr), portOf(addr)))
	})
}

// Varnish starts a varnishd with vsthrottle in front of the server at addr, and returns its URL. It
// adds no header fields. It stops with the test, which is skipped if varnishd or vsthrottle is not
// installed.
func Varnish(t testing.TB, addr string, l Limit) (url string) {
	t.Helper()
	path := testenv.Program(t, "varnishd", "/usr/sbin/varnishd")
	if found, _ := filepath.Glob("/usr/lib/*/varnish/vmods/libvmod_vsthrottle.so"); len(found) == 0 {
		t.Skip("gatewaytest: there is no vsthrottle, which the package varnish-modules has")
	}
	return start(t, func(dir string, port int) *exec.Cmd {
		return varnish(t, path, dir, port, fmt.Sprintf(vsthrottle, hostOf(addr), portOf(addr), l.Rate, l.Status))
	})
}

func varnish(t testing.TB, path, dir string, port int, vcl string) *exec.Cmd {
	file := write(t, dir, "default.vcl", vcl)
	return exec.Command(path, "-j", "none", "-F", "-n", dir, "-a", "127.0.0.1:"+strconv.Itoa(port), "-f", file, "-s",
		"malloc,8m")
}

const vsthrottle = `
vcl 4.0;
import vsthrottle;
backend service { .host = "%s"; .port = "%s"; }
sub vcl_recv {
	if (vsthrottle.is_denied("all", %d, 1s)) { return (synth(%d)); }
	return (pass);
}
sub vcl_synth { return (deliver); } # or it says Retry-After: 5
`

func caddy(t testing.TB, path, dir, config string) *exec.Cmd {
	cmd := exec.Command(path, "run", "--adapter", "caddyfile", "--config", write(t, dir, "Caddyfile", config))
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	return cmd
}

const caddyfile = `
{
	admin off
	auto_https off
}
http://:%d {
	reverse_proxy %s
}
`

const vcl = `
vcl 4.0;
backend service { .host = "%s"; .port = "%s"; }
sub vcl_recv { return (pass); }
`

func hostOf(addr string) string { host, _, _ := net.SplitHostPort(addr); return host }
func portOf(addr string) string { _, port, _ := net.SplitHostPort(addr); return port }

// start starts a command with its own directory and port.
func start(t testing.TB, command func(dir string, port int) *exec.Cmd) (url string) {
	t.Helper()
	var err error
	for range 5 { // another process may take the port
		port := daemon.FreePort(t)
		var d *daemon.Daemon
		url = fmt.Sprintf("http://127.0.0.1:%d", port)
		d, err = daemon.Start(command(t.TempDir(), port), func(*daemon.Daemon) bool { return answers(url) })
		if err == nil {
			t.Cleanup(d.Kill)
			return url
		}
	}
	t.Fatalf("gatewaytest: %v", err)
	return ""
}

// answers reports whether an HTTP server answers at url.
func answers(url string) bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Head(url)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode < http.StatusInternalServerError || resp.StatusCode == http.StatusServiceUnavailable
}

func write(t testing.TB, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatalf("gatewaytest: %v", err)
	}
	return path
}
