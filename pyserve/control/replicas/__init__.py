"""The processes of replicas and the streams to them: started, joined, watched."""
