// Command kubernetes creates an object with client-go. The API server, played by package
// standin, is busy and refuses the first attempt. heed waits and sends it again:
//
//	cd examples/sdks && go run ./kubernetes
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/client-go/rest"

	"github.com/heedhttp/heed"
	"github.com/heedhttp/heed/examples/sdks/internal/standin"
	"github.com/heedhttp/heed/ratelimit"
)

// newClient returns a client that respects the limits of its server. A clientset takes the same
// config. Leader election needs a config of its own, without heed, because the renewal of a
// lease must not wait.
func newClient(config *rest.Config) (*rest.RESTClient, error) {
	config.QPS = -1 // or client-go limits itself to 5 requests a second
	config.Wrap(func(base http.RoundTripper) http.RoundTripper {
		return last{&heed.Transport{Base: base, Retry: heed.RetryPolicy{Profiles: profiles}}}
	})
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return rest.UnversionedRESTClientFor(config)
}

var profiles = []*ratelimit.Profile{ratelimit.Vendor("kubernetes").On()} // any host
const configMaps = "/api/v1/namespaces/default/configmaps"

// last removes Retry-After from the responses that heed returns, because client-go retries all
// that have it, ten times. Request.MaxRetries(0) stops that too, but clientsets do not offer it.
type last struct{ http.RoundTripper }

func (l last) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Header.Del("Retry-After") // the body has the same in details.retryAfterSeconds
	}
	return resp, err
}

func main() {
	busy := standin.Refusing(429, "", `{"metadata": {"uid": "7"}}`, "Retry-After", "1")
	client, err := newClient(&rest.Config{Host: "https://cluster.test", Transport: busy})
	if err != nil {
		log.Fatal(err)
	}
	made, err := client.Post().AbsPath(configMaps).Body([]byte("{}")).Do(context.Background()).Raw()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("made %s\n", made)
}
