package live

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html"
	"net/http"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heedhttp/heed/ratelimit"
)

// A Page shows what one limiter does. Instrument its Config and serve the Page:
//
//	page := &live.Page{Hosts: []string{"admin.example.com"}}
//	limiter, err := serverside.New(page.Instrument(cfg))
//	admin.Handle("/limits/", page)
//
// The zero Page is ready to use. Do not change its fields afterwards, and do not copy it. It is
// safe for concurrent use, and runs no goroutine of its own.
//
// Its memory is bounded: two minutes of history for up to 256 rules; for each rule 128 keys
// denied most and 128 seen most in the last 5 to 10 minutes, by sampling; four policies for
// each key; and the last 64 denials.
type Page struct {
	// Title is the heading of the page. If empty, "Limits".
	Title string

	// Hosts are the names or addresses by which browsers reach the page, such as
	// "admin.example.com". Case and ports are ignored. localhost, loopback addresses and the
	// address on which a connection came in are always known. Behind a proxy, list the Host
	// that the proxy sends. A request for another host gets 421, because it may come from
	// another site by DNS rebinding.
	Hosts []string

	// MaxViewers is how many browsers may watch at the same time. One more disconnects the
	// oldest. If zero or less, 32.
	MaxViewers int

	stats            stats
	rules            atomic.Pointer[rules]
	outage           atomic.Pointer[outage] // nil while the Store answers
	denials, notices journal
	streams          streams
}

// ServeHTTP serves the page, its assets, events and explanations. Only the part of the path
// after the last slash matters, so a Page can be mounted anywhere, with or without
// http.StripPrefix.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	_, file := path.Split(r.URL.Path)
	asking := file == "explain" && r.Method == http.MethodPost
	switch {
	case !p.knows(r):
		const reason = "this page is not for that host: the program has to list it in live.Page.Hosts"
		http.Error(w, reason, http.StatusMisdirectedRequest)
	case (asking || file == "events") && !sameOrigin(r):
		http.Error(w, "only the page itself may request this", http.StatusForbidden)
	case asking:
		answer(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		allow := "GET, HEAD"
		if file == "explain" {
			allow += ", POST"
		}
		h.Set("Allow", allow)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case r.URL.Path == "": // after http.StripPrefix; relative URLs need the slash
		h.Set("Location", path.Base(strings.SplitN(r.RequestURI, "?", 2)[0])+"/")
		w.WriteHeader(http.StatusFound)
	case file == "events":
		p.stream(w, r)
	default:
		serve(w, r, file)
	}
}

// policy is the Content-Security-Policy: scripts and requests of the page's own origin only.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed assets
var files embed.FS

// An asset is a file of the page.
type asset struct {
	data       []byte
	kind, etag string
}

// assets are all files, by their names in URLs.
var assets = map[string]asset{
	"":           load("index.html", "text/html; charset=utf-8"),
	"explain":    load("explain.html", "text/html; charset=utf-8"),
	"live.js":    load("live.js", "text/javascript; charset=utf-8"),
	"explain.js": load("explain.js", "text/javascript; charset=utf-8"),
	"style.css":  load("style.css", "text/css; charset=utf-8"),
	"icon.svg":   load("icon.svg", "image/svg+xml"),
}

func load(file, kind string) asset {
	data, err := files.ReadFile("assets/" + file)
	if err != nil {
		panic(err) // cannot happen: it is embedded
	}
	data = bytes.Replace(data, []byte("<!-- vendors -->"), vendorOptions(), 1)
	sum := sha256.Sum256(data)
	return asset{data, kind, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// vendorOptions returns an HTML option for each vendor.
func vendorOptions() (options []byte) {
	for _, name := range ratelimit.VendorNames() {
		title := html.EscapeString(ratelimit.Vendor(name).Title)
		options = fmt.Appendf(options, `<option value="%s">%s</option>`, html.EscapeString(name), title)
	}
	return options
}

func serve(w http.ResponseWriter, r *http.Request, name string) {
	a, ok := assets[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.data))
}
