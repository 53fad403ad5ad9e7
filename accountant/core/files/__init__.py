"""What files hold: their types, Parquet, rows; bounded in memory and time."""
