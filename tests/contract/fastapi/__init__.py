"""FastAPI behind the mesh, compared with FastAPI under uvicorn."""
