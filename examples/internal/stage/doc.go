// Package stage has what examples need that set many workers on a limited
// server: the server, which keeps a log, the workers, in one process or several,
// and a screen for what the server has seen.
package stage
