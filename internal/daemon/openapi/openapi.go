// Package openapi describes the HTTP paths of the data listener, for programs:
// GET /openapi.yaml.
package openapi

import (
	_ "embed" // the description
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Path is where the description is served.
const Path = "/openapi.yaml"

//go:embed openapi.yaml
var description []byte

// Description returns the description, which must not be changed.
func Description() []byte { return description }

// Handler serves the description; no token is needed.
func Handler() http.Handler {
	return Only("GET, HEAD", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/yaml")
		w.Header().Set("Content-Length", strconv.Itoa(len(description)))
		_, _ = w.Write(description) // fails only if the client is gone
	})
}

// Only refuses all methods but those in the list, with 405.
func Only(methods string, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		if !slices.Contains(strings.Split(methods, ", "), r.Method) {
			h.Set("Allow", methods)
			h.Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusMethodNotAllowed)
			_, _ = w.Write([]byte(`{"code":"method_not_allowed","message":"this method is not allowed here; allowed: ` + methods + `"}` + "\n"))
			return
		}
		next(w, r)
	})
}
