// A service is down for five minutes, as after a bad deployment. Retries cannot help. They should
// neither keep callers waiting nor load the server that comes back. The clients make 100 calls a
// second in all, and either were healthy for a minute or start in the trouble.

package lab

import (
	"fmt"
	"net/http"
	"time"
)

func longs() (all []Scenario) {
	var loads []Load
	for _, clients := range []int{10, 100, 1000} {
		loads = append(loads, Load{Name: fmt.Sprint(clients), Clients: clients, Rate: 100 / float64(clients)})
	}
	limited := Reply{Status: http.StatusTooManyRequests, RetryAfter: time.Second, Took: 3 * time.Millisecond}
	for _, kind := range []struct {
		name  string
		reply Reply
	}{{"refused", refused}, {"503", unavailable}, {"429", limited}} {
		s := Scenario{Name: kind.name + " 5m", Healthy: time.Minute, Lasts: 5 * time.Minute, After: justNow,
			Loads: loads, Server: always(kind.reply)}
		all = append(all, s)
		s.Name, s.Healthy = kind.name+" 5m from the start", 0
		all = append(all, s)
	}
	return all
}
