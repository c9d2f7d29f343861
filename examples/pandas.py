#!/usr/bin/env python3
"""Read what `brim export` wrote into a data frame.

    brim export readings --out readings --from -7d
    pip install pandas pyarrow
    python3 pandas.py readings
"""
import sys

sys.path.pop(0)  # the folder of this file, whose name is that of the library
import pandas as pd  # noqa: E402

df = pd.read_parquet(sys.argv[1])  # all days; a column `day` is added
df["day"] = df["day"].astype(str)
print(f"{len(df)} readings of {df['sensorId'].nunique()} sensors, {df['ts'].min().isoformat()} to {df['ts'].max().isoformat()}")
print(df.dtypes.drop("day").to_string())

# The mean of the field t by tag and day.
print(df.groupby(["site", "day"])["t"].agg(["count", "sum", "mean"]).to_string())

# Only some columns of one sensor, in steps of an hour: the rest is not read.
one = pd.read_parquet(sys.argv[1], columns=["ts", "t"], filters=[("sensorId", "==", "s-1")])
print(one.set_index("ts")["t"].resample("1h").mean().head(3).to_string())
