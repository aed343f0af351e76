// One process calls a host for 200 customers, each with a credential of its own, and the host is
// down. Whether it is down does not depend on the credential.

package lab

import (
	"net/http"
	"strconv"
	"time"
)

func credentials() []Scenario {
	bearer := func(random *Random) *http.Request {
		req := get("/")
		req.Header.Set("Authorization", "Bearer "+strconv.Itoa(int(200*random.Share())))
		return req
	}
	customers := Load{Name: "200 customers", Clients: 1, Rate: 200, Request: bearer}
	return []Scenario{
		{Name: "refused 3s with credentials", Healthy: warmUp, Lasts: 3 * time.Second, After: justNow,
			Loads: []Load{customers}, Server: always(refused)},
		{Name: "503 5s with credentials", Healthy: warmUp, Lasts: 5 * time.Second, After: justNow,
			Loads: []Load{customers}, Server: cold},
	}
}
