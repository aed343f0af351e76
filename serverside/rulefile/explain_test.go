package rulefile_test

import (
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/serverside/rulefile"
)

func TestExplanationListsRulesInOrder(t *testing.T) {
	text := `
exempt: GET /health
allow: [{name: ops, match: ours, policies: 9/1s}]
rules:
- {name: all, stage: overload, policies: 1000/1s}
- {name: ip, policies: [50/1s, 500/1m]}
- {name: slots, max_in_flight: 3}
- {name: v1, pattern: /v1/, policies: 60/1m burst 4, key: "join(ip, user)", cost: weight,
   penalty: {after: 1, within: 1m, first: 1m}}
- {name: other, pattern: /v2/, policies: 1/1s}
`
	explain := func(method, url string, fields ...string) *rulefile.Explanation {
		r := httptest.NewRequest(method, url, nil)
		for i := 0; i < len(fields); i += 2 {
			r.Header.Set(fields[i], fields[i+1])
		}
		e, err := rulefile.Explain("r.yaml", []byte(text), env(), r)
		require.NoError(t, err)
		return e
	}
	e := explain("GET", "/v1/a", "X-User", "ann")
	var names, policies []string
	for _, a := range e.Rules {
		names = append(names, a.Rule.Name)
		for _, c := range a.Charges {
			policies = append(policies, c.Policy.Name)
		}
	}
	assert.Equal(t, []string{"v1", "ip", "slots", "all"}, names)
	assert.Equal(t, []string{"v1/1m", "ip/1s", "ip/1m", "all/1s"}, policies)
	v1, slots := e.Rules[0], e.Rules[2]
	assert.Equal(t, []string{"join(ip, user)", "key:9:192.0.2.13:ann"}, []string{v1.Key, v1.Value})
	assert.EqualValues(t, 5, v1.Charges[0].Cost)
	assert.True(t, v1.Charges[0].Decision.Never, "5 of 4")
	assert.Equal(t, []string{"cost weight"}, v1.Functions[:1])
	assert.Equal(t, []string{"ip", "key:192.0.2.1"}, []string{slots.Key, slots.Value})
	assert.Empty(t, slots.Charges)
	assert.Equal(t, []string{"everybody", "key:*"}, []string{e.Rules[3].Key, e.Rules[3].Value})

	assert.Equal(t, &rulefile.Explanation{Exempt: true}, explain("GET", "/health"))
	trusted := explain("GET", "/v1/a", "X-Ours", "1")
	require.Len(t, trusted.Rules, 1)
	assert.True(t, trusted.Rules[0].Allowed)
	assert.Equal(t, "ops", trusted.Rules[0].Rule.Name)

	text = "{exempt: /health, key: 'header:X-Key', rules: [{pattern: /v1/, stage: after-auth, policies: 1/s}]}"
	assert.Equal(t, &rulefile.Explanation{Exempt: true}, explain("GET", "/health"))
	assert.Equal(t, &rulefile.Explanation{}, explain("GET", "/v2/"), "which no rule is for")
	assert.Len(t, explain("GET", "/v1/").Rules, 1)
	text = "rules: [{pattern: /v1/, policies: 1/s}]"
	assert.Equal(t, &rulefile.Explanation{}, explain("GET", "/v2/"), "which no rule is for")
	text = "rules: [{pattern: /v1/}]"
	_, err := rulefile.Explain("r.yaml", []byte(text), env(), httptest.NewRequest("GET", "/", nil))
	assert.Len(t, rulefile.Faults(err), 1)
}
