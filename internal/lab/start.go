// Programs start together, as after a power cut or with docker compose up, and a client is ready
// before its server. The client has no healthy time, and its first call is all there is.

package lab

import "time"

func starts() []Scenario {
	first := Load{Name: "first call", Clients: 50,
		Starts: func(random *Random, from, _ time.Duration) []time.Duration {
			return []time.Duration{from + time.Duration(random.Share()*float64(100*time.Millisecond))}
		}}
	return []Scenario{{Name: "starts 2.3s before its server", Lasts: 2300 * time.Millisecond,
		Loads: []Load{first}, Server: always(refused)}}
}
