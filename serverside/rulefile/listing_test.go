package rulefile_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/serverside/rulefile"
)

func TestListingNamesFunctions(t *testing.T) {
	text := `
trusted_proxies: 10.0.0.0/8
ipv6_bits: 56
body: none
allow:
- {name: ops, match: ours, policies: 9/1s}
- {name: probe, peers: [10.1.2.3, 10.2.0.0/16], policies: 9/1s}
rules:
- {pattern: /v1/, policies: 60/1m burst 4, key: "join(ip, user)", cost: weight, if: ours}
- name: ip
  policies: 50/1s
- {name: all, stage: overload, policies: 1000/1s}
`
	l, err := rulefile.List("r.yaml", []byte(text), env())
	require.NoError(t, err)
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, l.Proxies.Trusted)
	assert.Equal(t, 56, l.Proxies.IPv6Bits)
	assert.Equal(t, "none", l.Body)
	require.Len(t, l.Rules, 3)
	assert.Equal(t, "/v1/", l.Rules[0].Rule.Name)
	assert.Equal(t, "join(ip, user)", l.Rules[0].Key)
	assert.Equal(t, []string{"if ours", "cost weight"}, l.Rules[0].Functions)
	assert.Equal(t, [2]int{9, 3}, [2]int{l.Rules[0].Line, l.Rules[0].Column})
	assert.Equal(t, "ip", l.Rules[1].Key)
	assert.Equal(t, 10, l.Rules[1].Line)
	assert.Equal(t, "everybody", l.Rules[2].Key)
	require.Len(t, l.Allow, 2)
	assert.Equal(t, "ops", l.Allow[0].Rule.Name)
	assert.Equal(t, []string{"10.1.2.3/32", "10.2.0.0/16"},
		[]string{l.Allow[1].Peers[0].String(), l.Allow[1].Peers[1].String()})
}

func TestListReturnsFaults(t *testing.T) {
	_, err := rulefile.List("r.yaml", []byte("rules: []"), env())
	assert.NotEmpty(t, rulefile.Faults(err))
	l, err := rulefile.List("r.yaml", []byte("rules: [{policies: 1/1s}]"), env())
	require.NoError(t, err)
	assert.Equal(t, "problem", l.Body)
	assert.Empty(t, l.Proxies.Trusted)
}
