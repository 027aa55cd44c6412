"""`chary serve`: decisions over HTTP that are on the disk before they are answered."""
