package ratelimit_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/heedhttp/heed/ratelimit"
)

func TestCachedResponsesAreRecognized(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"Age", "7", true}, {"Age", "0", false}, {"Age", "", false},
		{"X-Cache", "HIT", true}, {"X-Cache", "Hit from cloudfront", true}, {"X-Cache", "MISS, HIT", false},
		{"X-Cache", "Miss from cloudfront", false},
		{"X-From-Cache", "1", true}, {"X-From-Cache", "0", false},
		{"Cache-Status", "Near; hit; ttl=376", true}, {"Cache-Status", "Origin; hit, Near; fwd=uri-miss", true},
		{"Cache-Status", "Near; fwd=uri-miss; stored", false}, {"Cache-Status", "hit; fwd=uri-miss", false},
		{"X-Other", "HIT", false},
	} {
		assert.Equal(t, c.want, ratelimit.FromCache(http.Header{c.name: {c.value}}), "%s: %s", c.name, c.value)
	}
	assert.False(t, ratelimit.FromCache(nil))
}
