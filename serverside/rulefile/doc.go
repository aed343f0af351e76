// Package rulefile reads the rules of a serverside.Limiter from a YAML or JSON file, and
// reloads them when the file changes.
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
// docs/rules.md describes all fields. Watch makes a Limiter that follows a file:
//
//	rules, err := rulefile.Watch("rules.yaml", rulefile.Env{})
//	…
//	defer rules.Close()
//	server := &http.Server{Handler: rules.Limiter.Wrap(mux), ReadTimeout: 10 * time.Second}
//
// A file with a fault changes nothing: the rules in effect stay, and each fault is reported
// with its line. Rules and policies that keep their name keep their counts.
//
// Parse reads a file once. Functions and stores cannot be in a file: the program passes them in
// an Env, and the file refers to them by name.
package rulefile
