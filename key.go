package heed

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/heedhttp/heed/internal/hostkey"
)

// hosts remembers the spelling of scheme://host. It is shared by all
// Transports, and bounded.
var hosts hostkey.Cache

// ByCredential is a Key: scheme://host and a hash of the Authorization field, so
// that one customer's limit stops only him. Without that field it is scheme://host
// alone. The credential cannot be read from it.
func ByCredential(req *http.Request) string {
	key := hosts.Key(req.URL.Scheme, req.URL.Host)
	credential := req.Header.Get("Authorization")
	if credential == "" {
		return key
	}
	sum := sha256.Sum256([]byte(credential))
	return key + " " + hex.EncodeToString(sum[:16])
}
