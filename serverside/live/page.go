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

// A Page shows what one limiter does: the one whose Config it has instrumented. The zero
// value is ready for use; its fields must not change once it is. It is safe for
// concurrent use, must not be copied, and has no goroutine of its own.
//
// What it keeps is bounded: the last two minutes by the second, of up to 256 rules; of
// each rule the 128 keys that are denied most and that are seen most in the last 5 to 10
// minutes, as far as a sample tells; of each key four policies, which are told apart by what
// fits at once; and the last 64 denials.
type Page struct {
	// Title is what stands above the page. If empty, "Limits".
	Title string

	// Hosts are the names or addresses by which browsers reach the page, such as
	// "admin.example.com"; case and ports do not matter. localhost, loopback addresses and
	// the address that a connection came in on need not be named: if Hosts is empty, there
	// are no others. A request for another host is answered with 421, because it may come
	// from a page elsewhere whose name was made to resolve to this server (DNS rebinding).
	// Behind a proxy, the Host that the proxy sends counts.
	Hosts []string

	// MaxViewers is how many may watch at a time. When one more comes, the one that was
	// connected first has to go. If zero or less, 32.
	MaxViewers int

	stats            stats
	rules            atomic.Pointer[rules]
	outage           atomic.Pointer[outage] // nil while the Store answers
	denials, notices journal
	streams          streams
}

// ServeHTTP serves the page, its parts, the events that it shows, and explanations. What
// matters of a path is what follows its last slash: so a Page can be mounted anywhere,
// with http.StripPrefix or without it.
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
		const reason = "this page is not for that host: the program has to name it in live.Page.Hosts"
		http.Error(w, reason, http.StatusMisdirectedRequest)
	case (asking || file == "events") && !sameOrigin(r):
		http.Error(w, "only the page itself may ask for this", http.StatusForbidden)
	case asking:
		answer(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		allow := "GET, HEAD"
		if file == "explain" {
			allow += ", POST"
		}
		h.Set("Allow", allow)
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case r.URL.Path == "": // as http.StripPrefix leaves it; relative URLs need the slash
		h.Set("Location", path.Base(strings.SplitN(r.RequestURI, "?", 2)[0])+"/")
		w.WriteHeader(http.StatusFound)
	case file == "events":
		p.stream(w, r)
	default:
		serve(w, r, file)
	}
}

// policy has browsers run scripts of the page's own origin, talk to that alone, and load
// nothing from elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed assets
var files embed.FS

// An asset is a part of the page.
type asset struct {
	data       []byte
	kind, etag string
}

// assets are all parts, by what URLs call them.
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
		panic(err) // it is embedded
	}
	data = bytes.Replace(data, []byte("<!-- vendors -->"), vendorOptions(), 1)
	sum := sha256.Sum256(data)
	return asset{data, kind, `"` + hex.EncodeToString(sum[:8]) + `"`}
}

// vendorOptions is HTML with an option for each vendor.
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
