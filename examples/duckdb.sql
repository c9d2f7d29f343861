-- Query what `brim export` wrote, where it is:
--
--   brim export readings --out readings --from -7d
--   duckdb < duckdb.sql
--
-- The column day is that of the folders; a condition on it or on sensorId skips files
-- and parts of files.
CREATE VIEW readings AS SELECT * FROM read_parquet('readings/*/*.parquet', hive_partitioning = true);

SELECT count(*) AS readings, count(DISTINCT "sensorId") AS sensors, sum(t) AS sum_t, sum(h) AS sum_h FROM readings;

-- The mean of the field t by tag and day.
SELECT site, day, count(t) AS n, round(avg(t), 3) AS mean FROM readings GROUP BY ALL ORDER BY ALL;

-- One sensor in steps of an hour, in UTC rather than in the time zone of the session.
SELECT time_bucket(INTERVAL '1 hour', ts AT TIME ZONE 'UTC') AS hour, round(avg(t), 3) AS mean
FROM readings WHERE "sensorId" = 's-1' GROUP BY ALL ORDER BY ALL LIMIT 3;
