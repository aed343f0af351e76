// A name server restarts, or a service without ready instances has no address. SERVFAIL and a
// timeout say that the look-up may work later. NXDOMAIN says that there is no such name, and is
// also what some clusters answer while nothing is ready.

package lab

import (
	"net"
	"time"
)

func lookups() (all []Scenario) {
	for _, kind := range []struct {
		name string
		took time.Duration
		err  net.DNSError
	}{
		{"SERVFAIL", 20 * time.Millisecond, net.DNSError{Err: "server misbehaving", IsTemporary: true}},
		{"timeout", time.Second, net.DNSError{Err: "i/o timeout", IsTimeout: true, IsTemporary: true}},
		{"NXDOMAIN", 5 * time.Millisecond, net.DNSError{Err: "no such host", IsNotFound: true}},
	} {
		kind.err.Name = "api.example.com"
		all = append(all, Scenario{Name: "look-up " + kind.name + " 2s", Healthy: warmUp, Lasts: 2 * time.Second, After: justNow,
			Loads: sizes, Server: always(Reply{Err: dialError(&kind.err), Took: kind.took})})
	}
	return all
}
