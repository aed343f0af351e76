package clientside

import (
	"maps"
	"net/http"
	"strings"
	"sync"

	"github.com/heedhttp/heed/internal/hostkey"
)

// hosts are the servers that have a label of their own, by the key of their budget:
// scheme://host.
type hosts struct {
	most int
	keys hostkey.Cache

	mu     sync.RWMutex
	labels map[string]string // guarded by mu
}

// label is the host of a request, or "other" if there are too many.
func (h *hosts) label(req *http.Request) string {
	key := h.keys.Key(req.URL.Scheme, req.URL.Host)
	h.mu.RLock()
	label, known := h.labels[key]
	full := len(h.labels) >= h.most
	h.mu.RUnlock()
	if known {
		return label
	}
	if full {
		return "other"
	}
	return h.add(strings.Clone(key)) // of what may be a long URL
}

func (h *hosts) add(key string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	label, known := h.labels[key]
	switch {
	case known:
		return label
	case len(h.labels) >= h.most:
		return "other"
	case h.labels == nil:
		h.labels = make(map[string]string)
	}
	_, host, _ := strings.Cut(key, "://")
	label = strings.ToValidUTF8(host, "\uFFFD")
	h.labels[key] = label
	return label
}

// known returns the labels, by key.
func (h *hosts) known() map[string]string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return maps.Clone(h.labels)
}
