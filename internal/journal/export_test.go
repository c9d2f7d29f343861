package journal

import "encoding/binary"

// SealHead writes the right checksum into a changed header of a segment.
func SealHead(content []byte) {
	text := content[segmentHead:][:binary.LittleEndian.Uint32(content[16:])]
	binary.LittleEndian.PutUint32(content[20:], checksum(checksum(0, content[:20]), text))
}

// SealRecord writes the right checksums into a changed record of a segment.
func SealRecord(content []byte, at int, session string) {
	record := content[at:]
	payload := record[headerSize:][:binary.LittleEndian.Uint32(record[4:])]
	binary.LittleEndian.PutUint32(record[8:], checksum(0, payload))
	binary.LittleEndian.PutUint32(record[headerCRCPos:], checksum(sessionSeed(session), record[:headerCRCPos]))
}

// HeaderSize is that of a record.
const HeaderSize = headerSize

// Arrivals counts the times of arrival that are remembered.
func Arrivals(j *Journal) int {
	j.published.mu.Lock()
	defer j.published.mu.Unlock()
	return j.published.times.n
}

// Redraw has the records that come from now on written under a new session.
func Redraw(j *Journal) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.replaceSession()
}
