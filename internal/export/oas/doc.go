// Package oas holds what heed rules export openapi makes to the schema of the OpenAPI
// Initiative, by its tests. It is a module of its own, so that heed does not depend on
// a library for JSON schemas.
package oas
