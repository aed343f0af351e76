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

// An EnvError is one fault of the environment. FromEnv joins all there are.
type EnvError struct {
	Variable string // its name
	Reason   string // what is wrong with it; never its value, which may hold a password
}

func (e *EnvError) Error() string { return "redisstore: " + e.Variable + ": " + e.Reason }

// FromEnv is a Store in the Redis that the environment names. It does not connect,
// so a Redis that is not there yet is no error. Close its Client when the Store is
// no longer in use.
//
//	REDIS_URL      redis://:password@host:6379/0, rediss:// for TLS, or unix://; required
//	REDIS_TLS      true or false; if true, TLS also with redis://
//	REDIS_TIMEOUT  Store.Timeout, such as 20ms
//
// The error joins an *EnvError for each variable that is wrong. An empty one is as
// good as none.
func FromEnv() (*Store, error) { return FromEnvOr("") }

// FromEnvOr is FromEnv, in the Redis at url where REDIS_URL names none.
func FromEnvOr(url string) (*Store, error) {
	options, err := redisOptions(cmp.Or(os.Getenv("REDIS_URL"), url))
	timeout, late := timeoutOf(os.Getenv("REDIS_TIMEOUT"))
	if err = errors.Join(err, addTLS(options, os.Getenv("REDIS_TLS")), late); err != nil {
		return nil, err
	}
	options.ContextTimeoutEnabled = true
	return &Store{Client: redis.NewClient(options), Timeout: timeout}, nil
}

// timeoutOf is what REDIS_TIMEOUT says, or 0.
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
		return nil, &EnvError{"REDIS_URL", "is missing: write as in redis://:password@host:6379/0"}
	}
	options, err := redis.ParseURL(url)
	if err != nil { // which would show the password
		return nil, &EnvError{"REDIS_URL", "is no URL of a Redis: write as in redis://:password@host:6379/0"}
	}
	return options, nil
}

// addTLS does what REDIS_TLS says. Without options it only looks at that.
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
		return &EnvError{"REDIS_TLS", "is true, but REDIS_URL is a socket of this machine"}
	case text == "true" && options.TLSConfig == nil:
		options.TLSConfig = &tls.Config{ServerName: hostOf(options.Addr), MinVersion: tls.VersionTLS12}
	}
	return nil
}

// hostOf is addr without its port, and an IPv6 address without brackets.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
