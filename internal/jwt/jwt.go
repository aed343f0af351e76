// Package jwt tells whose a JSON Web Token is.
package jwt

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// Holder returns whose token it is by the unverified claims of a JSON Web Token (RFC 7519), or ""
// if it is no such token or does not say so: issuer and tenant alone do not.
func Holder(token string) string {
	header, rest, _ := strings.Cut(token, ".")
	claims, signature, found := strings.Cut(rest, ".")
	if !found || strings.Contains(signature, ".") { // five parts are encrypted (RFC 7516)
		return ""
	}
	h := membersOf(header, "alg", "kid")
	c := membersOf(claims, "iss", "tid", "sub", "azp", "client_id", "appid", "cid")
	if h == nil || c == nil || !strings.HasPrefix(h[0], `"`) || h[1]+strings.Join(c[2:], "") == "" {
		return ""
	}
	return strings.Join(append(c, h[1]), ",") // unambiguous: strings keep their quotes
}

// membersOf returns the values of the named members of the JSON object in a part of a token, each as
// written, or "" if it is missing, null or empty. It returns nil if there is no such object of at
// most 8 KiB, or if a named member is there twice (RFC 7519 section 4) or is neither a string nor a
// number. Package json would take SUB for sub or cost three times as much.
func membersOf(part string, names ...string) []string {
	if len(part) > base64.RawURLEncoding.EncodedLen(8<<10) {
		return nil
	}
	decoded, err := base64.RawURLEncoding.Strict().DecodeString(part)
	text := strings.TrimSpace(string(decoded))
	if err != nil || !json.Valid(decoded) || text[0] != '{' {
		return nil
	}
	values := make([]string, len(names))
	depth, start, colon := 0, 1, 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			for i++; text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case c == '{' || c == '[':
			depth++
		case depth == 1 && c == ':':
			colon = i
		case depth == 1 && (c == ',' || c == '}') && colon > 0:
			name, value := strings.TrimSpace(text[start:colon]), strings.TrimSpace(text[colon+1:i])
			at := slices.Index(names, name[1:len(name)-1])
			switch {
			case strings.Contains(name, `\u`): // it may spell one of names
				return nil
			case at < 0 || value == "null" || value == `""`:
			case values[at] != "" || !strings.Contains(`"-0123456789`, value[:1]):
				return nil
			default:
				values[at] = value
			}
			start = i + 1
		case c == '}' || c == ']':
			depth--
		}
	}
	return values
}
