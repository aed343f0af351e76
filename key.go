package heed

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/heedhttp/heed/internal/hostkey"
	"github.com/heedhttp/heed/internal/jwt"
)

// hosts caches the spelling of scheme://host for all Transports. Its size is bounded.
var hosts hostkey.Cache

// ByHost is a Transport.Key that returns scheme://host: all credentials share one cool-down.
func ByHost(req *http.Request) string { return hosts.Key(req.URL.Scheme, req.URL.Host) }

// ByCredential is the default Transport.Key. It returns scheme://host and, if the request has a
// credential, a hash of it, so that one customer's limit delays only that customer. The credential
// cannot be read from the hash. For some vendors the Transport adds the request's scope: see
// Transport.Key.
//
// The credential is the Authorization field, where some vendors expect a key without a scheme, or
// else the first field in which vendors expect a key (X-Api-Key, Private-Token and the like).
// Schemes that sign each request (AWS4-HMAC-SHA256, Digest, OAuth 1.0, Hawk, SharedKey) count by
// the part that names the account, so that all requests of one account share a cool-down. Unknown
// schemes, cookies and keys in the URL are ignored: write a Key of your own for these.
//
// A Bearer or DPoP token that is a JSON Web Token (RFC 7519) counts by its claims iss, sub, tid and
// client (azp, client_id, appid, cid) and its header's kid: a program whose token is renewed, or made
// for each request, is one customer. Without sub, client and kid, or with more than 8 KiB of claims,
// the whole token counts, as any other token does: then a renewed one is a new customer. Claims are
// not verified, and anyone can write those of another. So this is for the program's own tokens; where
// others' tokens pass through, as in a reverse proxy, write a Key that returns whom the proxy has
// authenticated, as the example Transport (ReverseProxy) does.
//
// The credential must be in the request when it reaches the Transport; what Base adds is not seen.
// So put what adds it around heed,
//
//	client := &http.Client{Transport: &oauth2.Transport{Source: tokens, Base: &heed.Transport{}}}
//
// or write a Key that takes the customer from the request's context.
func ByCredential(req *http.Request) string {
	host := ByHost(req)
	credential := credentialOf(req.Header)
	if credential == "" {
		return host
	}
	sum := sha256.Sum256([]byte(credential))
	return host + " " + hex.EncodeToString(sum[:16])
}

// keyFields are the fields in which vendors expect a key that is the same in all requests of a
// customer.
var keyFields = []string{
	"X-Api-Key", "Api-Key", "Apikey", "X-Apikey", "X-Api-Token", "X-Auth-Token", "X-Auth-Key", "X-Access-Token",
	"X-Goog-Api-Key",             // Google
	"Private-Token", "Job-Token", // GitLab
	"X-Shopify-Access-Token",       // Shopify
	"Ocp-Apim-Subscription-Key",    // Azure API Management
	"Dd-Api-Key",                   // Datadog
	"Cb-Access-Key",                // Coinbase
	"X-Rapidapi-Key", "Xi-Api-Key", // RapidAPI, ElevenLabs
	"X-Figma-Token", "X-Vault-Token", // Figma, Vault
	"X-Subscription-Token",           // Brave
	"X-Cisco-Meraki-Api-Key",         // Meraki
	"Circle-Token", "X-Tableau-Auth", // CircleCI, Tableau
	"X-N8n-Api-Key", "X-Typesense-Api-Key", "X-Algolia-Api-Key",
}

// credentialOf returns what identifies the customer in h, or "".
func credentialOf(h http.Header) string {
	if values := h["Authorization"]; len(values) > 0 {
		if account := accountOf(values[0]); account != "" {
			return account
		}
	}
	for _, name := range keyFields {
		if values := h[name]; len(values) > 0 && values[0] != "" {
			return name + ": " + values[0]
		}
	}
	return ""
}

// repeatedSchemes are the schemes whose credential is the same in all requests of a customer.
var repeatedSchemes = map[string]bool{
	"basic": true, "bearer": true, "token": true, "apikey": true, "api-key": true, "key": true, "bot": true,
	"dpop": true, "geniekey": true, "ssws": true, "oauth": true, "zoho-oauthtoken": true, "klaviyo-api-key": true,
	"splunk": true,
}

// signedSchemes sign each request. The value is the name of the parameter with the account, or ""
// if the account is the text before the first colon.
var signedSchemes = map[string]string{
	"aws4-hmac-sha256": "credential", "aws4-ecdsa-p256-sha256": "credential", "goog4-rsa-sha256": "credential",
	"goog4-hmac-sha256": "credential", "acs3-hmac-sha256": "credential", "tc3-hmac-sha256": "credential",
	"hmac-sha256": "credential", "sdk-hmac-sha256": "access", "eg1-hmac-sha256": "client_token",
	"digest": "username", "oauth": "oauth_token", "hawk": "id", "mac": "id", "signature": "keyid",
	"aws": "", "goog1": "", "sharedkey": "", "sharedkeylite": "",
}

// shortestBareKey is longer than the name of any scheme that may come without a credential.
const shortestBareKey = 24

// accountOf returns the part of an Authorization field that is the same in all requests of an
// account, or "".
func accountOf(authorization string) string {
	scheme, rest, found := strings.Cut(strings.TrimSpace(authorization), " ")
	scheme, rest = strings.ToLower(scheme), strings.TrimSpace(rest)
	if !found && len(scheme) >= shortestBareKey {
		return authorization // a key without a scheme, as Linear and monday have
	}
	if rest == "" {
		return ""
	}
	if name, signed := signedSchemes[scheme]; signed {
		account := ""
		if name == "" {
			account, _, _ = strings.Cut(rest, ":")
		} else {
			account = parameter(rest, name)
			if name == "credential" {
				account, _, _ = strings.Cut(account, "/") // the rest is a date, region and service
			}
		}
		if account != "" {
			return scheme + " " + account
		}
		if scheme != "oauth" || strings.Contains(rest, "=\"") {
			return ""
		}
	}
	if scheme == "bearer" || scheme == "dpop" { // DPoP sends access tokens too (RFC 9449 section 7.1)
		if holder := jwt.Holder(rest); holder != "" {
			return "jwt " + holder
		}
	}
	if repeatedSchemes[scheme] {
		return scheme + " " + rest
	}
	return ""
}

// parameter returns the value of the named parameter, or "". The name is in lower case. Parameters
// are separated by commas, semicolons, ampersands or spaces.
func parameter(list, name string) string {
	for part := range strings.FieldsFuncSeq(list, func(r rune) bool { return strings.ContainsRune(",;& ", r) }) {
		key, value, found := strings.Cut(part, "=")
		if found && strings.EqualFold(strings.TrimSpace(key), name) {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}
