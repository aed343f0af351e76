// Package browsertest tests the pages of package live in a browser. It is a module of
// its own, so that users do not depend on the browser driver.
//
// The picture in docs/live.png is made by
//
//	cd serverside/live/browsertest && go test -run TestPicture -update
package browsertest
