// One route of an API is broken and always answers 503, say because a table is missing. A quarter of
// the calls go there. Measured are the calls of the good route of the same host.

package lab

import (
	"net/http"
	"time"
)

func routes() []Scenario {
	mixed := func(random *Random) *http.Request {
		if random.Share() < 0.25 {
			return get("/broken")
		}
		return get("/good")
	}
	var loads []Load
	for _, l := range sizes {
		l.Request = mixed
		loads = append(loads, l)
	}
	return []Scenario{{Name: "beside a broken route", Lasts: 30 * time.Second, Loads: loads,
		Judged: func(path string) bool { return path == "/good" },
		Server: func(c Conditions) http.RoundTripper {
			return Server(func(_ time.Duration, req *http.Request) Reply {
				if req.URL.Path == "/broken" {
					return unavailable
				}
				return good(c.Random)
			}).from(c.From)
		}}}
}
