// Package rulefile reads the rules of a serverside.Limiter from a file, of YAML or
// JSON.
//
//	rules:
//	  - name: login
//	    pattern: POST /login
//	    policies: 5/1m log
//	    on_store_error: closed
//	  - name: api
//	    pattern: /v1/
//	    key: header:X-Api-Key
//	    stage: after-auth
//	    policies: [60/1m burst 10, 10000/month Europe/Berlin]
//
// docs/rules.md has all fields. Parse reads a file, and says of each fault where it
// is.
//
// What a file cannot say, functions and stores, is given by the program in an Env,
// under names that the file may use.
package rulefile
