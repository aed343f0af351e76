package live

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
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

	// MaxViewers is how many may watch at a time; others get 503, and see the page
	// when somebody has left. If zero, 32.
	MaxViewers int

	routes
	store            store
	rules            atomic.Pointer[rules]
	denials, notices journal
	worst            cache
	streams          streams
}

// ServeHTTP serves the page, its parts, and the events that it shows. What matters of a
// path is what follows its last slash: so a Page can be mounted anywhere, with
// http.StripPrefix or without it.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch _, file := path.Split(r.URL.Path); {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case r.URL.Path == "": // as http.StripPrefix leaves it; relative URLs need the slash
		w.Header().Set("Location", path.Base(strings.SplitN(r.RequestURI, "?", 2)[0])+"/")
		w.WriteHeader(http.StatusFound)
	case file == "events":
		p.stream(w, r)
	default:
		serve(w, r, file)
	}
}

//go:embed assets
var files embed.FS

// An asset is a part of the page.
type asset struct {
	data               []byte
	kind, policy, etag string
}

// assets are all parts, by what URLs call them.
var assets = func() map[string]asset {
	all := make(map[string]asset)
	add := func(name, kind, connect string, data []byte) {
		sum := sha256.Sum256(data)
		all[name] = asset{data, kind, policy + connect, `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	for _, file := range []string{"live.js", "explain.js", "ratelimit.js"} {
		add(file, "text/javascript; charset=utf-8", "'none'", read(file))
	}
	add("", "text/html; charset=utf-8", "'self'", read("index.html")) // for events
	add("explain", "text/html; charset=utf-8", "'none'", read("explain.html"))
	add("style.css", "text/css; charset=utf-8", "'none'", read("style.css"))
	add("icon.svg", "image/svg+xml", "'none'", read("icon.svg"))
	add("vendors.js", "text/javascript; charset=utf-8", "'none'", vendors())
	return all
}()

func read(file string) []byte {
	data, err := files.ReadFile("assets/" + file)
	if err != nil {
		panic(err) // it is embedded
	}
	return data
}

// vendors is a script that has all profiles.
func vendors() []byte {
	var profiles []*ratelimit.Profile
	for _, name := range ratelimit.VendorNames() {
		profiles = append(profiles, ratelimit.Vendor(name))
	}
	data, err := json.Marshal(profiles)
	if err != nil {
		panic(err) // they are data
	}
	return fmt.Appendf(nil, "export const vendors = %s;\n", data)
}

// policy is the Content-Security-Policy of all parts but for whom they may talk to: they
// run scripts of their own origin, and nothing from elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src "

func serve(w http.ResponseWriter, r *http.Request, name string) {
	a, ok := assets[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Content-Security-Policy", a.policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", a.etag)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(a.data))
}
