"""Version 1 of ACP as a rendering of version 2: requests in, results, updates and questions out. Pure; knows no core."""
