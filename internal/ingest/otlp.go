package ingest

import (
	"fmt"
	"mime"
	"net/http"

	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/brim-telemetry/brim/pkg/telemetry"
)

// OTLP, OpenTelemetry's protocol: exports of metrics over HTTP and gRPC.

const (
	exportPath = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"

	mediaJSON = "application/json"
)

// otlpStatus returns the status of a result. Refused points do not change a success: the
// response counts them, and the client must not retry.
func otlpStatus(r result) *statusRow {
	if r <= noneAllowed {
		r = allTaken
	}
	return &statuses[r]
}

// serveMetrics serves an export over HTTP.
func (srv *Server) serveMetrics(x *exchange) error {
	if _, err := parseQuery(x.r); err != nil {
		return err
	}
	in, err := x.intake(x.r.Header.Get(streamHeader), nil)
	if err != nil {
		return err
	}
	media := x.otlpMedia()
	if media != mediaProtobuf && media != mediaJSON {
		return telemetry.Errorf(telemetry.Unsupported, codeTypeUnknown,
			"Content-Type %s cannot be read; allowed: %s and %s", telemetry.Quote([]byte(x.r.Header.Get("Content-Type"))), mediaProtobuf, mediaJSON)
	}
	return x.take(in, func(body []byte) error { return in.export(body, media == mediaJSON) })
}

// answerOTLP writes the answer to an export over HTTP.
func (x *exchange) answerOTLP(in *intake) {
	x.text = in.appendExported(x.text[:0], x.otlpMedia() == mediaJSON)
	x.writeOTLP(http.StatusOK, x.text)
}

// otlpMedia returns the media type of a request, which is also that of the response.
func (x *exchange) otlpMedia() string {
	media, _, _ := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	return media
}

func (x *exchange) writeOTLP(status int, body []byte) {
	media := mediaProtobuf
	if x.otlpMedia() != mediaProtobuf {
		media = mediaJSON
	}
	h := x.w.Header()
	h.Set("Content-Type", media)
	h.Set("X-Content-Type-Options", "nosniff")
	x.w.WriteHeader(status)
	_, _ = x.w.Write(body) // fails only if the connection is closed
}

// writeOTLPProblem answers a refused request.
func (x *exchange) writeOTLPProblem(r result, e *telemetry.Error) {
	row := otlpStatus(r)
	s := &rpcstatus.Status{Code: int32(row.grpc), Message: e.Code + ": " + e.Message}
	encode := protojson.Marshal
	if x.otlpMedia() == mediaProtobuf {
		encode = proto.Marshal
	}
	body, _ := encode(s) // the text is UTF-8
	x.writeOTLP(row.http, body)
}

// export decodes a request. It may have no readings.
func (in *intake) export(body []byte, inJSON bool) (err error) {
	in.mayBeEmpty = true
	in.otlp, err = in.decodeOTLP(body, inJSON)
	in.server.metrics.skipped.WithLabelValues(skipNoValue).Add(float64(in.otlp.skipped))
	in.otlp.readings = in.answer.Rejected
	return err
}

// appendExported appends an ExportMetricsServiceResponse, with a partial success if points
// were rejected.
func (in *intake) appendExported(dst []byte, inJSON bool) []byte {
	t := &in.otlp
	late := max(0, in.answer.Rejected-t.readings) // by the store
	rejected, why := t.rejected+late, t.first
	if why == "" && late > 0 {
		e := in.answer.Errors[0]
		why = string(e.Code) + ": " + e.Message
	}
	switch {
	case rejected == 0 && inJSON:
		return append(dst, "{}"...)
	case rejected == 0:
		return dst
	}
	response := pmetricotlp.NewExportResponse()
	response.PartialSuccess().SetRejectedDataPoints(int64(rejected))
	response.PartialSuccess().SetErrorMessage(fmt.Sprintf("%d of %d data points were refused; the first: %s", rejected, t.points, why))
	encode := response.MarshalProto
	if inJSON {
		encode = response.MarshalJSON
	}
	text, _ := encode() // never fails
	return append(dst, text...)
}

// serveExport serves Export over gRPC.
func (srv *Server) serveExport(c *call) error {
	m, err := c.receiveOnly()
	if err != nil {
		return err
	}
	_, r, refused := m.take(c.ctx, func(body []byte) error { return m.in.export(body, false) })
	if refused != nil {
		return c.refusal(r, refused)
	}
	if m.in.answer.repeated {
		c.w.Header().Set(headerReplayed, "true")
	}
	return c.write(m.in.appendExported(make([]byte, messagePrefix, 64), false))
}
