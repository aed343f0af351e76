// Package ginlimit makes a limiter of package serverside into middleware of gin. Prefer to wrap
// the engine, limiter.Wrap(engine), which needs no adapter and sees every response.
package ginlimit

import (
	"bufio"
	"io"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
)

// Middleware returns wrap, the Wrap or WrapEarly of a serverside.Limiter, as middleware of gin:
//
//	engine.Use(gin.Logger(), gin.Recovery(), ginlimit.Middleware(limiter.Wrap))
//
// If the limiter denies a request, the handlers after it are not called. If it admits one, it sees
// their responses: what they write, the status that they set with Context.Status, and the 404 or
// 405 of gin itself. It does not see what middleware before it writes after Context.Next. So put
// middleware that turns Context.Errors into responses after it.
//
// If a handler neither writes nor sets a status, gin answers 200. The limiter does not count that
// as a success (serverside.Response).
func Middleware(wrap func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		original, admitted := c.Writer, false
		defer func() { c.Writer = original }()
		wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			admitted = true
			writer := &responseWriter{ResponseWriter: original, limiter: w}
			c.Request, c.Writer = r, writer
			c.Next()
			writer.finish()
		})).ServeHTTP(original, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}

// A responseWriter writes through the limiter's writer, which writes to the embedded
// gin.ResponseWriter. That one knows the status and the size.
//
// In gin, WriteHeader only sets the status, which may change until something is written. The
// limiter takes the first status that it gets, so it gets the final one.
type responseWriter struct {
	gin.ResponseWriter
	limiter http.ResponseWriter
	set     bool // a handler has set the status
}

func (w *responseWriter) WriteHeader(status int) {
	w.set = w.set || status > 0 // gin's renderers pass -1 to keep what is set
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) WriteHeaderNow() {
	if !w.Written() {
		w.limiter.WriteHeader(w.Status())
	}
	w.ResponseWriter.WriteHeaderNow()
}

func (w *responseWriter) Write(b []byte) (int, error) {
	w.WriteHeaderNow()
	return w.limiter.Write(b)
}

func (w *responseWriter) WriteString(s string) (int, error) {
	w.WriteHeaderNow()
	return io.WriteString(w.limiter, s)
}

func (w *responseWriter) Flush() {
	w.WriteHeaderNow()
	w.ResponseWriter.Flush()
}

func (w *responseWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.limiter).Hijack()
}

// Unwrap is for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.limiter }

// finish passes a status without a body to the limiter. gin would write it past the limiter.
func (w *responseWriter) finish() {
	switch {
	case w.Written():
	case w.set:
		w.WriteHeaderNow()
	case w.Status() != http.StatusOK:
		w.limiter.WriteHeader(w.Status()) // the 404 or 405 of gin, which writes the body later
	}
}
