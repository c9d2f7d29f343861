package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

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

// otlpStatus returns the status of a result. It is a success if points were refused: the
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
	stream, err := srv.stream(x.r.Header.Get(streamHeader))
	if err != nil {
		return err
	}
	in, err := x.intake(stream, nil)
	if err != nil {
		return err
	}
	media := x.otlpMedia()
	if media != mediaProtobuf && media != mediaJSON {
		return telemetry.Errorf(telemetry.Unsupported, codeTypeUnknown,
			"Content-Type %s cannot be read; allowed: %s and %s", telemetry.Quote([]byte(first(x.r.Header["Content-Type"]))), mediaProtobuf, mediaJSON)
	}
	var tally otlpTally
	if err := x.decode(in, func(body []byte) (err error) {
		tally, err = in.decodeOTLP(body, media == mediaJSON)
		return err
	}); err != nil {
		return err
	}
	r, err := in.export(x.r.Context(), &tally)
	if err != nil {
		return err
	}
	srv.metrics.answered(protoOTLPHTTP, r, time.Since(x.start), &in.answer)
	if in.answer.repeated {
		x.w.Header().Set(headerReplayed, "true")
	}
	x.text = tally.appendResponse(x.text[:0], media == mediaJSON)
	x.writeOTLP(http.StatusOK, x.text)
	return nil
}

// otlpMedia returns the media type of a request, which is also that of the response.
func (x *exchange) otlpMedia() string {
	media, _, _ := mime.ParseMediaType(first(x.r.Header["Content-Type"]))
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

// export appends the readings of a request, which may have none.
func (in *intake) export(ctx context.Context, tally *otlpTally) (r result, err error) {
	in.server.metrics.skipped[skipNoValue].Add(float64(tally.skipped))
	if in.count == 0 {
		return allTaken, nil
	}
	before := in.answer.Rejected
	if r, err = in.append(ctx); err != nil {
		return r, err
	}
	late := in.answer.Rejected - before // by the store
	tally.rejected += max(0, late)
	if tally.first == "" && late > 0 {
		e := in.answer.Errors[0]
		tally.first = string(e.Code) + ": " + e.Message
	}
	return r, nil
}

// appendResponse appends an ExportMetricsServiceResponse. It has a partial success only if
// points were rejected.
func (t *otlpTally) appendResponse(dst []byte, inJSON bool) []byte {
	switch {
	case t.rejected == 0 && inJSON:
		return append(dst, "{}"...)
	case t.rejected == 0:
		return dst
	}
	response := pmetricotlp.NewExportResponse()
	response.PartialSuccess().SetRejectedDataPoints(int64(t.rejected))
	response.PartialSuccess().SetErrorMessage(fmt.Sprintf("%d of %d data points were refused; the first: %s", t.rejected, t.points, t.first))
	encode := response.MarshalProto
	if inJSON {
		encode = response.MarshalJSON
	}
	text, _ := encode() // never fails
	return append(dst, text...)
}

// serveExport serves Export over gRPC.
func (srv *Server) serveExport(c *call) error {
	start := time.Now()
	m, err := c.receive()
	if errors.Is(err, io.EOF) {
		err = telemetry.Errorf(telemetry.Invalid, codeMalformed, "the call has no message; nothing was accepted")
	}
	if err != nil {
		return srv.refuseCall(c.ctx, protoOTLPGRPC, err, start)
	}
	defer m.end()
	var in intake
	defer in.close()
	tally, err := m.decodeExport(&in)
	var r result
	if err == nil {
		m.free()
		r, err = in.export(c.ctx, &tally)
	}
	if err != nil {
		m.end()
		in.close()
		return srv.refuseCall(c.ctx, protoOTLPGRPC, err, start)
	}
	srv.metrics.answered(protoOTLPGRPC, r, time.Since(start), &in.answer)
	if in.answer.repeated {
		c.w.Header().Set(headerReplayed, "true")
	}
	framed := tally.appendResponse(make([]byte, messagePrefix, 64), false)
	binary.BigEndian.PutUint32(framed[1:], uint32(len(framed)-messagePrefix))
	_, err = c.w.Write(framed)
	return err
}

// decodeExport decodes the request of an Export call.
func (m *message) decodeExport(in *intake) (tally otlpTally, err error) {
	srv, c := m.server, m.call
	if m.compressed {
		if err := m.inflateMessage(c.ctx); err != nil {
			return tally, err
		}
	}
	length := int64(len(m.data))
	switch {
	case srv.stopping():
		return tally, errStopping()
	case length > srv.config.MaxBodyBytes:
		return tally, errMessageTooLarge(length, srv.config.MaxBodyBytes)
	}
	stream, err := srv.stream(c.r.Header.Get(streamHeader))
	if err != nil {
		return tally, err
	}
	want, err := srv.wantedAck(c.r, nil)
	if err != nil {
		return tally, err
	}
	key, err := idempotencyKey(c.r.Header[headerKey])
	if err != nil {
		return tally, err
	}
	in.open(srv, stream, want)
	in.who, in.key, in.lease, in.ctx = c.who, key, &m.lease, c.ctx
	in.build()
	if tally, err = in.decodeOTLP(m.data, false); err == nil && key != "" {
		in.hash = bodyHash(m.data, in.meaning)
	}
	return tally, err
}
