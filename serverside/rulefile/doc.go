// Package rulefile keeps the rules of a serverside.Limiter in a file of YAML or JSON,
// and has the Limiter follow the file while it runs.
//
//	rules:
//	  - name: address
//	    policies: 300/1m
//	  - name: login
//	    pattern: POST /login
//	    login: form:user
//	  - name: api
//	    pattern: /v1/
//	    key: header:X-Api-Key
//	    stage: after-auth
//	    policies: [60/1m burst 10, 10000/month Europe/Berlin]
//
// docs/rules.md has all keys of a file. Parse reads a file, and reports each fault with
// its place. Watch makes a Limiter that follows a file:
//
//	rules, err := rulefile.Watch("rules.yaml", rulefile.Env{})
//	…
//	defer rules.Close()
//	server := &http.Server{Handler: rules.Limiter.Wrap(mux), ReadTimeout: 10 * time.Second}
//
// A wrong file changes nothing: the rules in effect stay. Rules and policies that keep
// their name keep what was spent, also when their numbers change.
//
// Functions and stores cannot be in a file. The program passes them in an Env, under
// names that the file may use.
package rulefile
