// Package rulefile keeps the rules of a serverside.Limiter in a file, of YAML or
// JSON, and has the Limiter follow the file while it runs.
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
// is; Watch makes a Limiter that follows it:
//
//	rules, err := rulefile.Watch("rules.yaml", rulefile.Env{})
//	…
//	defer rules.Close()
//	http.ListenAndServe(":8080", rules.Limiter.Wrap(mux))
//
// A file that is wrong changes nothing: what was in effect stays. What keys have
// spent stays spent in rules and policies that keep their name, also where their
// numbers change.
//
// What a file cannot say, functions and stores, is given by the program in an Env,
// under names that the file may use.
package rulefile
