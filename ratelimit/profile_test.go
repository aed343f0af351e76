package ratelimit_test

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heedhttp/heed/ratelimit"
)

// A profileVector is a row of testdata/wire-vectors-profiles.json.
type profileVector struct {
	vector
	Profile string `json:"profile"`
	Body    string `json:"body"`
}

// wait is what the profile makes of v. The profile called pace is no vendor's: it is
// what Parse tells of a success.
func (v *profileVector) wait(h http.Header) string {
	if v.Profile == "pace" {
		limits := ratelimit.Parse(h, v.Now)
		if len(limits) == 0 {
			return none
		}
		return limits[0].Wait().String()
	}
	a := ratelimit.Vendor(v.Profile).Judge(v.Status, h, []byte(v.Body), v.Now)
	if !a.Known {
		return none
	}
	return a.Wait.String()
}

func TestVectorsOfProfiles(t *testing.T) {
	data, err := os.ReadFile("testdata/wire-vectors-profiles.json")
	require.NoError(t, err)
	var vectors []profileVector
	require.NoError(t, json.Unmarshal(data, &vectors))
	for _, v := range vectors {
		want := none
		if v.WantMS != nil {
			want = (time.Duration(*v.WantMS) * time.Millisecond).String()
		}
		assert.Equal(t, want, v.wait(v.header()), "%s: %s", v.Name, v.Why)
	}
	assert.Len(t, vectors, 18)
}
