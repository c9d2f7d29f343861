package openapi_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/brim-telemetry/brim/internal/daemon/openapi"
)

func TestDescriptionIsValid(t *testing.T) {
	t.Parallel()
	doc, err := openapi3.NewLoader().LoadFromData(openapi.Description())
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
	assert.NotNil(t, doc.Paths.Find(openapi.Path), "it describes itself")
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			assert.NotEmpty(t, operation.OperationID, method+path)
			assert.NotNil(t, operation.Responses.Status(http.StatusMethodNotAllowed), method+path)
		}
	}
}

func TestDescriptionIsServed(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	openapi.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, openapi.Path, http.NoBody))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "application/yaml", w.Header().Get("Content-Type"))
	assert.Equal(t, openapi.Description(), w.Body.Bytes())
	w = httptest.NewRecorder()
	openapi.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, openapi.Path, http.NoBody))
	assert.Equal(t, http.StatusMethodNotAllowed, w.Code)
	assert.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
}
