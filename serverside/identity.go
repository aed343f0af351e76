package serverside

import "net/http"

// An identity is whose quota a request is charged to. What rules have in common
// is asked for once.
type identity struct {
	request   *http.Request
	otherwise KeyFunc // where a rule has none; may be nil
	common    string
}

// of returns the Store's key for r.
func (id *identity) of(r *rule) string {
	if r.key != nil {
		if key := r.key(id.request); key != "" {
			return subject(key)
		}
	}
	if id.common == "" {
		id.common = id.fallback()
	}
	return id.common
}

func (id *identity) fallback() string {
	if id.otherwise != nil {
		if key := id.otherwise(id.request); key != "" {
			return subject(key)
		}
	}
	return peerOf(id.request)
}
