package redisstore

import (
	"cmp"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// An EnvError is one invalid environment variable. FromEnv joins all of them.
type EnvError struct {
	Variable string // its name
	Reason   string // what is wrong, without the value, which may hold a password
}

func (e *EnvError) Error() string { return "redisstore: " + e.Variable + " " + e.Reason }

// FromEnv returns a Store for the Redis that the environment names:
//
//	store, err := redisstore.FromEnv()
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer store.Client.Close()
//
// It reads these variables; an empty one counts as missing:
//
//	REDIS_URL      redis://:password@host:6379/0, rediss:// for TLS, or unix://; required
//	REDIS_TLS      true or false; if true, TLS with redis:// too
//	REDIS_TIMEOUT  Store.Timeout, such as 20ms
//
// FromEnv does not connect, so it works while Redis is down; see Store.Ping. The error joins an
// *EnvError for each invalid variable.
func FromEnv() (*Store, error) { return FromEnvOr("") }

// FromEnvOr is FromEnv, with url as the default of REDIS_URL.
func FromEnvOr(url string) (*Store, error) {
	options, err := redisOptions(cmp.Or(os.Getenv("REDIS_URL"), url))
	timeout, late := timeoutOf(os.Getenv("REDIS_TIMEOUT"))
	if err = errors.Join(err, addTLS(options, os.Getenv("REDIS_TLS")), late); err != nil {
		return nil, err
	}
	return &Store{Client: redis.NewClient(options), Timeout: timeout}, nil
}

// timeoutOf returns the value of REDIS_TIMEOUT, or 0 if it is empty.
func timeoutOf(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, &EnvError{"REDIS_TIMEOUT", "must be a duration, such as 20ms"}
	}
	return d, nil
}

func redisOptions(url string) (*redis.Options, error) {
	if url == "" {
		return nil, &EnvError{"REDIS_URL", "is not set: for example redis://:password@host:6379/0"}
	}
	options, err := redis.ParseURL(url)
	if err != nil { // its text would show the password
		return nil, &EnvError{"REDIS_URL", "is not the URL of a Redis, such as redis://:password@host:6379/0"}
	}
	return options, nil
}

// addTLS applies REDIS_TLS to options. If options is nil, it only checks the value.
func addTLS(options *redis.Options, text string) error {
	switch {
	case text == "":
		return nil
	case text != "true" && text != "false":
		return &EnvError{"REDIS_TLS", "must be true or false"}
	case options == nil:
		return nil
	case text == "false" && options.TLSConfig != nil:
		return &EnvError{"REDIS_TLS", "is false, but REDIS_URL begins with rediss"}
	case text == "true" && options.Network == "unix":
		return &EnvError{"REDIS_TLS", "is true, but REDIS_URL is a Unix socket, which has no TLS"}
	case text == "true" && options.TLSConfig == nil:
		options.TLSConfig = &tls.Config{ServerName: hostOf(options.Addr), MinVersion: tls.VersionTLS12}
	}
	return nil
}

// hostOf returns addr without its port, and an IPv6 address without brackets.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
